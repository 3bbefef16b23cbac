"""The timeline of the last step in a real JupyterLab: by pointer, by keyboard, with many ranks."""

import json
import re
import time

import pytest
from playwright.sync_api import Locator, WebSocket, expect

from tests.browser.accessible import expect_accessible
from tests.browser.lab import Lab, Notebook, Open, drag

pytestmark = pytest.mark.browser

IMPORTS = """
from driver import Run
from tests.dashboard.steps import step_of_a_pipeline
"""
START = (
    IMPORTS
    + """
about = dict(message=2e-4, noise=0.3, around=True)
trace = lambda step: step_of_a_pipeline({schedule!r}, seed=step, **about)
run = Run("MLP in stages", 4, epochs=50, trace=trace, on_save=lambda: "runs/1/trace.json").start()
"""
)
#: One step that stays as it is: 4 ranks, 8 micro-batches, as the families say.
STILL = (
    IMPORTS
    + """
step = step_of_a_pipeline("1f1b", message=2e-4, around=True)
run = Run("MLP in stages", 4, epochs=50, trace=lambda _: step).start()
"""
)
NUMBERS = """
import json
from tnt_notebook.dashboard.figures.step_layout import idle
from tnt_notebook.dashboard.figures.wording import short_time
step = run.view._card.timeline["measured"]
seconds = short_time(step["seconds"])
print(json.dumps({**idle(step), "seconds": seconds, "formula": step["formula"]}))
"""
VIEW_AGAIN = """() => {
  const app = window.jupyterapp;
  app.shell.currentWidget.content.activeCellIndex = 0;
  return app.commands.execute("notebook:create-output-view");
}"""
FRAMES = """(seconds) => new Promise((resolve) => {
  const start = performance.now();
  let frames = 0;
  const next = (now) => {
    frames += 1;
    if (now - start < 1000 * seconds) requestAnimationFrame(next);
    else resolve(frames);
  };
  requestAnimationFrame(next);
})"""


def canvas(notebook: Notebook) -> Locator:
    return notebook.page.locator(".tnt-step-canvas")


def tip(notebook: Notebook) -> Locator:
    return notebook.page.locator(".tnt-timeline .tnt-tip")


def pixels(notebook: Notebook) -> str:
    """What is drawn, as the browser would save it."""
    return canvas(notebook).evaluate("canvas => canvas.toDataURL()")


def place(notebook: Notebook, row: int, seconds: float, end: float) -> tuple[float, float]:
    """Where a time of a row's measured lane lies in the canvas, of four ranks and a whole step."""
    box = canvas(notebook).bounding_box()
    assert box
    left, right, top, height = 14 + 6.6 * len("rank 0"), 46, 20, 45
    return left + (box["width"] - left - right) * seconds / end, top + height * row + 19


@pytest.fixture
def still(lab: Lab, open_notebook: Open, request: pytest.FixtureRequest) -> Notebook:
    """A notebook whose step is always the same."""
    name = f"{request.node.name}.ipynb"
    lab.write(name, [STILL, NUMBERS])
    opened = open_notebook(name)
    opened.run_and_wait(0)
    expect(canvas(opened)).to_be_visible()
    return opened


@pytest.mark.parametrize(("schedule", "theme"), [("1f1b", "dark"), ("zb-v", "light")])
def test_the_timeline_of_a_pipeline_moves_until_it_is_paused(
    schedule: str, theme: str, lab: Lab, open_notebook: Open
):
    name = f"pipeline-{schedule}-{theme}.ipynb"
    lab.write(
        name, [START.format(schedule=schedule), "print(run.view.frames[-1]['step'])", "run.end()"]
    )
    notebook = open_notebook(name, theme=theme)
    notebook.run_and_wait(0)
    page = notebook.page
    expect(page.locator(".tnt-step")).to_have_text(
        re.compile(rf"^Last step [\d.]+ ms · idle \d+%, by the formula of {schedule} \d+%$")
    )
    drawn = pixels(notebook)
    wait_for_another_step(notebook)
    assert pixels(notebook) != drawn
    page.get_by_role("button", name="Pause view").click()
    resume = page.get_by_role("button", name="Resume view")
    expect(resume).to_be_visible()
    expect(canvas(notebook)).to_have_attribute("data-sweep", "done")
    where, label = page.locator(".tnt-where"), canvas(notebook).get_attribute("aria-label") or ""
    paused = where.inner_text()
    notebook.screenshot(f"timeline-{schedule}-{theme}", page.locator(".tnt-card"))
    expect_accessible(notebook)
    page.get_by_role("button", name="Save trace").click()
    expect(page.locator(".tnt-saved")).to_have_text("saved: runs/1/trace.json")
    notebook.run_and_wait(1)  # the run went on
    expect(where).to_have_text(paused)
    expect(canvas(notebook)).to_have_attribute("aria-label", label)
    resume.click()
    expect(where).not_to_have_text(paused)
    notebook.run_and_wait(2)
    expect(notebook.outputs(0).locator(".tnt-pill")).to_have_text("finished")
    notebook.screenshot(f"timeline-{schedule}-{theme}-over", notebook.outputs(0))


def test_its_numbers_are_those_of_the_analysis_after_a_refresh_too(still: Notebook):
    still.run_and_wait(1)
    of = json.loads(still.outputs(1).inner_text())
    heading = (
        f"Last step {of['seconds']} · idle {of['bubble']:.0%}, "
        f"by the formula of 1f1b {of['formula']:.0%}"
    )
    by_rank = ", ".join(f"rank {rank} for {idle:.0%}" for rank, idle in enumerate(of["idle"]))
    expect(still.page.locator(".tnt-step")).to_have_text(heading)
    expect(canvas(still)).to_have_attribute("aria-label", re.compile(f"Idle: {by_rank}\\."))
    still.save()
    still.refresh()
    expect(still.page.locator(".tnt-step")).to_have_text(heading)
    expect(canvas(still)).to_be_visible()


def test_pointing_at_a_box_says_what_it_is(still: Notebook):
    # Rank 0 waits for data for 0.3 ms, then forwards of 1 ms follow; the step takes that long:
    end = 0.3 + 11 * 2.8 + 3 * 0.4 + 0.6
    x, y = place(still, 0, 0.3 + 2.5, end)
    canvas(still).hover(position={"x": x, "y": y})
    expect(tip(still).locator("div").first).to_have_text("forward of micro-batch 2, stage 0")
    expect(tip(still)).to_contain_text("rank 0, 2.3 ms to 3.3 ms: 1 ms")
    still.screenshot("timeline-hover", still.page.locator(".tnt-timeline"))
    x, y = place(still, 1, 0.3 + 0.5, end)
    canvas(still).hover(position={"x": x, "y": y})
    expect(tip(still)).to_contain_text("wait for a message from rank 0")
    still.page.mouse.move(0, 0)
    expect(tip(still)).to_be_hidden()


def test_pointing_at_a_meter_says_what_each_rank_uses(still: Notebook):
    deck = still.page.locator(".tnt-run-canvas")
    expect(deck).to_have_attribute("aria-label", re.compile(r"network [\d.]+ .B/s"))
    box = deck.bounding_box()
    assert box
    meters = still.page.get_by_role("button", name="meters")
    x, y = 0.8 * box["width"], box["height"] - 22 - 4 * 26 + 8  # the first of four rows
    deck.hover(position={"x": x, "y": y})
    said = still.page.locator(".tnt-run .tnt-tip")
    expect(said).to_contain_text(re.compile(r"^CPU: rank 0 \d+% · .* · rank 3 \d+%"))
    meters.click()
    expect(meters).to_have_attribute("aria-pressed", "false")
    assert (deck.bounding_box() or box)["height"] < box["height"] - 90


def test_a_range_is_summed(still: Notebook):
    end = 0.3 + 11 * 2.8 + 3 * 0.4 + 0.6
    (left, y), (right, _) = place(still, 0, 0.3, end), place(still, 0, 4.3, end)
    drag(canvas(still), (left, y), (right, y))
    said = still.page.locator(".tnt-range")
    expect(said).to_have_text(re.compile(r"^\d{3} µs to 4\.\d+ ms, [34][\d.]* ms: forward \d+%"))
    canvas(still).press("Escape")
    expect(said).to_be_hidden()


@pytest.mark.thorough
def test_the_playhead_goes_back_to_an_earlier_step(still: Notebook):
    heading, deck = still.page.locator(".tnt-step"), still.page.locator(".tnt-run-canvas")
    expect(still.page.locator(".tnt-where")).to_contain_text("epoch 3")  # a second and more
    expect(heading).to_have_text(re.compile("^Last step"))
    live = still.page.get_by_role("button", name="live", exact=True)
    expect(live).to_have_attribute("aria-pressed", "true")
    box = deck.bounding_box()
    assert box
    left, right, below = 54, 46, box["height"] - 6
    width = box["width"] - left - right
    drag(deck, (left + 0.95 * width, below), (left + 0.6 * width, below))
    expect(heading).to_have_text(re.compile(r"^Step [\d.]+ ms · .* · at 0:0\d$"))
    said = heading.inner_text()
    expect(live).to_have_attribute("aria-pressed", "false")
    still.screenshot("playhead", still.page.locator(".tnt-card"))
    expect(still.page.locator(".tnt-where")).to_contain_text("epoch 6")
    expect(heading).to_have_text(said)  # the run goes on, the playhead stays
    for which in ("median", "slowest"):
        button = still.page.get_by_role("button", name=which, exact=True)
        button.click()
        expect(heading).to_have_text(re.compile(f"^{which.capitalize()} step"))
        expect(button).to_have_attribute("aria-pressed", "true")
    deck.press("l")
    expect(heading).to_have_text(re.compile("^Last step"))
    expect(live).to_have_attribute("aria-pressed", "true")


def test_what_is_told_stays_when_the_next_step_comes(still: Notebook):
    canvas(still).focus()
    still.page.keyboard.press("ArrowRight")
    wait_until_it_came_again(still)
    expect(tip(still)).to_be_visible()
    end = 0.3 + 11 * 2.8 + 3 * 0.4 + 0.6
    (left, y), (right, _) = place(still, 0, 0.3, end), place(still, 0, 4.3, end)
    drag(canvas(still), (left, y), (right, y))
    wait_until_it_came_again(still)
    expect(still.page.locator(".tnt-range")).to_be_visible()


def test_zoom_and_pan(still: Notebook):
    whole = still.page.get_by_role("button", name="whole step")
    expect(whole).to_be_disabled()
    canvas(still).hover(position={"x": 200, "y": 40})
    still.page.keyboard.down("Control")
    for _ in range(6):
        still.page.mouse.wheel(0, -100)
    still.page.keyboard.up("Control")
    expect(whole).to_be_enabled()
    closer = pixels(still)
    still.screenshot("timeline-closer", still.page.locator(".tnt-timeline"))
    canvas(still).press("a")
    assert pixels(still) != closer
    whole.click()
    expect(whole).to_be_disabled()
    still.page.get_by_role("button", name="Zoom in").click()
    expect(whole).to_be_enabled()


def test_by_keyboard(still: Notebook):
    said = still.page.locator(".tnt-said")
    canvas(still).focus()
    for key in ("ArrowRight", "ArrowRight"):
        still.page.keyboard.press(key)
    expect(said).to_have_text("forward of micro-batch 0, stage 0, rank 0, 300 µs to 1.3 ms: 1 ms")
    expect(tip(still)).to_be_visible()
    still.page.keyboard.press("ArrowDown")
    expect(said).to_have_text(re.compile("rank 1"))
    still.page.keyboard.press("ArrowUp")
    expect(said).to_have_text(re.compile("rank 0"))
    whole = still.page.get_by_role("button", name="whole step")
    for key in ("+", "+", "+"):
        still.page.keyboard.press(key)
    expect(whole).to_be_enabled()
    for _ in range(6):
        still.page.keyboard.press("ArrowRight")
    still.screenshot("timeline-keyboard", still.page.locator(".tnt-timeline"))
    still.page.keyboard.press("0")
    expect(whole).to_be_disabled()
    still.page.keyboard.press("Escape")
    expect(tip(still)).to_be_hidden()
    expect(still.cells).to_have_count(2)  # JupyterLab's own shortcuts did nothing
    # And the plan comes and goes, and so does the critical path.
    for name in ("planned", "critical path"):
        drawn = pixels(still)
        still.page.get_by_role("button", name=name).press("Space")
        assert pixels(still) != drawn


def test_two_views_of_a_run_look_at_different_parts(still: Notebook):
    still.page.evaluate(VIEW_AGAIN)
    views = still.page.locator(".tnt-card")
    expect(views).to_have_count(2)
    expect(still.page.locator(".tnt-step")).to_have_count(2)
    views.first.get_by_role("button", name="Zoom in").click()
    views.last.get_by_role("button", name="Pause view").click()
    expect(views.first.get_by_role("button", name="whole step")).to_be_enabled()
    expect(views.last.get_by_role("button", name="whole step")).to_be_disabled()
    expect(views.first.get_by_role("button", name="Pause view")).to_be_visible()


def test_it_follows_the_theme(still: Notebook):
    still.page.get_by_role("button", name="Pause view").click()  # nothing else draws it again
    still.change_theme("dark")
    still.page.wait_for_function(
        """() => {
          const canvas = document.querySelector(".tnt-step-canvas");
          const [red, green, blue] = canvas.getContext("2d").getImageData(1, 1, 1, 1).data;
          return red + green + blue < 200;
        }"""
    )


def test_no_sweep_where_motion_is_not_wanted(lab: Lab, open_notebook: Open):
    lab.write("calm.ipynb", [START.format(schedule="1f1b")])
    notebook = open_notebook("calm.ipynb")
    notebook.page.emulate_media(reduced_motion="reduce")
    notebook.run_and_wait(0)
    wait_for_another_step(notebook)
    wait_for_another_step(notebook)
    assert canvas(notebook).get_attribute("data-sweep") is None
    notebook.page.emulate_media(reduced_motion="no-preference")
    wait_for_another_step(notebook)
    expect(canvas(notebook)).to_have_attribute("data-sweep", "done")


MANY = (
    IMPORTS
    + """
about = dict(message=2e-4, noise=0.3, around=True, replicas=16, uneven=1e-4)
steps = [step_of_a_pipeline(seed=seed, **about) for seed in range(10)]
trace = lambda step: steps[step // 50 % 10]
run = Run("MLP on 16 x 4 ranks", 64, epochs=5, steps=6000, looks=50, trace=trace)
run.remember(430).start()
"""
)


def test_64_ranks_are_smooth_and_cheap(
    lab: Lab, open_notebook: Open, capsys: pytest.CaptureFixture[str]
):
    lab.write("ranks.ipynb", [MANY, "run.end()"])
    notebook = open_notebook("ranks.ipynb")
    received: list[int] = []

    def listen(socket: WebSocket) -> None:
        socket.on("framereceived", lambda payload: received.append(len(payload)))

    notebook.page.on("websocket", listen)
    notebook.refresh()
    notebook.run_and_wait(0)
    expect(canvas(notebook)).to_be_visible()
    expect(canvas(notebook)).to_have_attribute("aria-label", re.compile("^Timeline of 64 ranks. "))
    whole_run = notebook.page.locator(".tnt-run-canvas")
    expect(whole_run).to_have_attribute("aria-label", re.compile(r"CPU \d+%, memory \d+ MB"))
    notebook.page.set_viewport_size({"width": 1280, "height": 1500})  # all of it is in sight
    frame_s = cpu_s_of_a_frame(notebook)
    # From one step to the next: a step of so many ranks comes every few seconds only.
    wait_for_another_step(notebook)
    start, before = time.monotonic(), sum(received)
    for _ in range(3):  # a browser that is late with one shows the next the sooner
        wait_for_another_step(notebook)
    bytes_per_s = (sum(received) - before) / (time.monotonic() - start)
    notebook.page.get_by_role("button", name="Pause view").click()
    notebook.screenshot("timeline-64", notebook.page.locator(".tnt-card"))
    with capsys.disabled():
        print(f" {1e3 * frame_s:.0f} ms a frame, {bytes_per_s / 1e3:.1f} kB/s ", end="")
    assert frame_s < 1 / 20
    assert bytes_per_s < 10_000


def cpu_s_of_a_frame(notebook: Notebook) -> float:
    """Seconds of the page's main thread that a frame takes. Those of the clock would count whatever
    else this machine does."""
    session = notebook.page.context.new_cdp_session(notebook.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy_s() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

    before = busy_s()
    frames = notebook.page.evaluate(FRAMES, 2)
    return (busy_s() - before) / frames


def wait_for_another_step(notebook: Notebook) -> None:
    """Than the one it shows; where it shows none yet, than the first."""
    expect(canvas(notebook)).to_have_attribute("aria-label", re.compile("Last step"))
    label = canvas(notebook).get_attribute("aria-label") or ""
    expect(canvas(notebook)).not_to_have_attribute("aria-label", label)


def wait_until_it_came_again(still: Notebook) -> None:
    """The step, which is the same."""
    for _ in range(2):  # the first has begun before, perhaps
        expect(canvas(still)).to_have_attribute("data-sweep", "done")
        canvas(still).evaluate("canvas => { canvas.dataset.sweep = ''; }")
