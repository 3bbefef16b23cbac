# make demo     train the first tutorial on 2 ranks, without a browser
# make lab      open JupyterLab on notebooks/
# make test     all tests: C++, Python on real ranks, notebooks
# make test-all the same with every case and the long tests, before a release (hours)
# make test-versions       a core of them on the oldest and the newest Keras and TensorFlow that fit
# make check    formatting, lint, types          make format        mend the formatting
# make docs     the documentation as a site, in build/docs
# make pictures those of README and documentation, of real trainings in a browser
# make tutorials    runs the notebooks, and keeps what their cells show for the documentation
# make bench    benchmarks                       make test-kernels  C++ tests with sanitizers
# make campaign SECONDS=600 SEED=1 JOBS=2 ROW=7   random faults while models train, each judged;
#                                                 ROW repeats one, JOBS clusters run at a time
# make test-gpu tests on an NVIDIA GPU, and ResNet-50 there; GPU_PYTHON=python3: with a Python of your own
# make bench-comm          the backend beside MPI libraries, gloo and others, whichever are installed in
#                          the folder that TNT_BENCH_VENVS names; make contestants puts them there
# make bench-pipeline      schedules of pipelines, beside one rank alone and torch's
# make bench-exchange      what ranks do with their gradients, beside ranks alone and torch's DDP
# make bench-layouts       layers divided among ranks, beside one rank alone, torch and plain MPI
# make bench-input         images that are decoded by one rank each, beside whole batches on all ranks
# make bench-plan          steps as %tnt_plan predicts them, beside steps as they are
# make proxy    JupyterHub's proxy, for tests/hub, from npm into .local/proxy
# make clean    remove what the other targets made
#
# The first of them sets up .venv; later ones set up again only when what it depends on has changed.
# Nothing outside of this folder is changed.

PYTHON ?= python3
LAB_FLAGS ?=
# For the benchmarks: 1 measures everything, however long that takes.
THOROUGH ?= $(TNT_THOROUGH)

VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Which TensorFlow: cpu or cuda, the extras of pyproject.toml; by default the one that .venv has.
PACKAGES := $(VENV)/lib/python*/site-packages
INSTALLED := $(if $(wildcard $(PACKAGES)/tensorflow_cpu-*.dist-info),cpu,$(if \
	$(wildcard $(PACKAGES)/tensorflow-[0-9]*.dist-info),cuda))
TENSORFLOW ?= $(or $(INSTALLED),$(if $(wildcard /proc/driver/nvidia/gpus/*),cuda,cpu))

# A Python of your own for make test-gpu, with TensorFlow for CUDA; by default that of .venv.
GPU_PYTHON ?=
OWN_PATH := $(PATH)
# Sanitizers want the address space that they know: not a random one, where that can be had.
CTEST := $(shell setarch -R true 2>/dev/null && echo setarch -R) $(BIN)/ctest --output-on-failure

# What would otherwise be written to the home folder.
LOCAL := $(CURDIR)/.local
export IPYTHONDIR := $(LOCAL)/ipython
export JUPYTER_CONFIG_DIR := $(LOCAL)/jupyter/config
export JUPYTER_DATA_DIR := $(LOCAL)/jupyter/data
export JUPYTER_RUNTIME_DIR := $(LOCAL)/jupyter/runtime
export JUPYTERLAB_SETTINGS_DIR := $(LOCAL)/jupyter/lab/settings
export JUPYTERLAB_WORKSPACES_DIR := $(LOCAL)/jupyter/lab/workspaces
export KERAS_HOME := $(LOCAL)/keras
export MPLCONFIGDIR := $(LOCAL)/matplotlib
export XDG_CACHE_HOME := $(LOCAL)/cache
export XDG_CONFIG_HOME := $(LOCAL)/config
export XDG_DATA_HOME := $(LOCAL)/share
# And what would otherwise be read from it.
export PYTHONNOUSERSITE := 1
export PATH := $(BIN):$(PATH)

.PHONY: setup no-venv proxy demo lab test test-all test-versions test-gpu bench bench-comm bench-pipeline bench-exchange bench-layouts bench-input bench-plan campaign contestants check docs pictures tutorials format test-kernels clean

setup: $(READY)

KERNELS := $(shell find kernels -name '*.cpp' -o -name '*.h')
BUILT_FROM := pyproject.toml constraints.txt CMakeLists.txt $(wildcard widgets/*.js widgets/*.css) \
	$(wildcard labextension/*.json labextension/static/*) \
	tnt_notebook/telemetry/kinds.json kernels/engine/event_kind.h.in \
	$(filter-out kernels/test/%,$(KERNELS))

$(READY): $(BUILT_FROM) $(if $(filter-out $(TENSORFLOW),$(INSTALLED)),no-venv)
	@$(PYTHON) .ci/prerequisites.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt cmake nanobind ninja scikit-build-core
	$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation \
		--editable '.[$(TENSORFLOW),mpi,lab,sweep,test,check,docs]'
	@mkdir -p $(LOCAL)
	@touch $@

# TensorFlow for CPUs and for CUDA are the same files: one is not installed over the other.
no-venv:
	rm -rf $(VENV)

# 5 would need Node.js 20.
PROXY := $(LOCAL)/proxy/node_modules/configurable-http-proxy/package.json
proxy: $(PROXY)
$(PROXY):
	npm install --prefix $(LOCAL)/proxy --no-save --no-audit --no-fund --loglevel=error \
		configurable-http-proxy@4.6.3

demo: $(READY)
	$(BIN)/python -m tests.demo

lab: $(READY)
	$(BIN)/jupyter lab --ServerApp.root_dir=notebooks \
		$(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_FLAGS)

test: $(READY)
	$(BIN)/cmake --build build/editable --target kernels_tests
	$(CTEST) --test-dir build/editable
	@$(PYTEST) $(BESIDE) --nbval $(WAITING) >$(LOCAL)/waiting.log 2>&1 & waiting=$$!; \
	nice -n 2 $(PYTEST) $(BESIDE) $(COMPUTING) >$(LOCAL)/computing.log 2>&1 & computing=$$!; \
	failed=0; $(PYTEST) tests $(patsubst %,--ignore=%,$(WAITING) $(COMPUTING)) || failed=1; \
	wait $$waiting || failed=1; wait $$computing || failed=1; \
	echo "=== beside them, $(WAITING)"; cat $(LOCAL)/waiting.log; \
	echo "=== beside them, $(COMPUTING)"; cat $(LOCAL)/computing.log; \
	exit $$failed

# What a shell starts aside would not hear Ctrl-C.
PYTEST := env --default-signal=INT $(BIN)/python -m pytest
# Short, so that what is shown of a long log has what failed.
BESIDE := -p no:cacheprovider --quiet --tb=short
# Three run at a time: these wait for batch systems, hubs and hosts most of the time; and notebooks,
WAITING := tests/slurm tests/hub tests/hosts notebooks
# these compute on ranks that are there, and the others start clusters, kernels and browsers.
COMPUTING := tests/parallel tests/pipeline

test-all: export TNT_THOROUGH := 1
test-all: test-kernels test

# The oldest and the newest versions that are supported, each in an environment of its own.
VERSIONS := $(LOCAL)/versions
OLDEST := keras==3.10.0 tensorflow-cpu==2.16.2 pyarrow==18.1.0
NEWEST := keras==3.15.1 tensorflow-cpu==2.21.0
VERSIONS_TEST := pytest pytest-timeout hypothesis tensorboard

# The tests lie apart from the sources, so that they find the installed package.
test-versions: $(VERSIONS)/oldest/.ready $(VERSIONS)/newest/.ready
	rm -rf $(VERSIONS)/checkout
	mkdir $(VERSIONS)/checkout
	cp -R tests notebooks pyproject.toml $(VERSIONS)/checkout
	@cd $(VERSIONS)/checkout; failed=; for version in oldest newest; do \
		python=$(VERSIONS)/$$version/bin/python; \
		echo "=== the $$version: $$($$python -m pip freeze | grep -iE '^(keras|tensorflow.cpu)=' | xargs)"; \
		$$python -m pytest -m core tests/layers tests/parallel tests/pipeline || failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "failed on the$$failed"; exit 1; }

$(VERSIONS)/oldest/.ready: WANTED := $(OLDEST)
$(VERSIONS)/newest/.ready: WANTED := $(NEWEST)
$(VERSIONS)/%/.ready: $(VERSIONS)/wheel/.built
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip install --quiet $(WANTED) || \
		{ echo "$(WANTED) cannot be installed for $$($(@D)/bin/python --version)."; exit 1; }
	$(@D)/bin/pip install --quiet --force-reinstall --no-deps $(<D)/*.whl
	$(@D)/bin/pip install --quiet $(WANTED) $$(ls $(<D)/*.whl)[mpi,data] $(VERSIONS_TEST)
	@touch $@

$(VERSIONS)/wheel/.built: $(READY) $(shell find tnt_notebook -name '*.py')
	rm -rf $(@D)
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(@D) .
	@touch $@

# In .venv this sets up TensorFlow for CUDA, if there is a GPU to use it on.
test-gpu: AT_HAND := $(if $(GPU_PYTHON),env 'PATH=$(OWN_PATH)' $(GPU_PYTHON),$(PYTHON))
test-gpu: CHOSEN := $(if $(GPU_PYTHON),$(AT_HAND),$(BIN)/python)
test-gpu:
	@$(AT_HAND) tests/gpu/required.py driver
	$(if $(GPU_PYTHON),,$(MAKE) TENSORFLOW=cuda setup)
	@$(CHOSEN) tests/gpu/required.py
	$(CHOSEN) -m pytest tests/gpu
	$(CHOSEN) -m tests.benchmarks.gpu

bench bench-comm bench-pipeline bench-exchange bench-layouts bench-input bench-plan: export TNT_THOROUGH := $(THOROUGH)

bench: $(READY)
	$(BIN)/python -m tests.benchmarks bench

TNT_BENCH_VENVS ?= $(LOCAL)/contestants
export TNT_BENCH_VENVS

bench-comm: $(READY)
	$(BIN)/python -m tests.benchmarks comm $(RESULTS)

bench-pipeline: $(READY)
	$(BIN)/python -m tests.benchmarks pipeline $(RESULTS)

bench-exchange: $(READY)
	$(BIN)/python -m tests.benchmarks exchange $(RESULTS)

bench-layouts: $(READY)
	$(BIN)/python -m tests.benchmarks layouts $(RESULTS)

bench-input: $(READY)
	$(BIN)/python -m tests.benchmarks input $(RESULTS)

bench-plan: $(READY)
	$(BIN)/python -m tests.benchmarks plan $(RESULTS)

SECONDS ?= 600
SEED ?= 1
JOBS ?= 2
campaign: $(READY)
	$(BIN)/python -m tests.campaign --seconds $(SECONDS) --seed $(SEED) --jobs $(JOBS) \
		$(if $(ROW),--only $(ROW))

contestants: $(READY)
	$(BIN)/python -m tests.benchmarks.contestants install $(TNT_BENCH_VENVS)

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(KERNELS)

# No page is left out, no name goes without a docstring, no link within the site is dead.
docs: $(READY)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env --write-all \
		docs build/docs
	@echo "The site is build/docs/index.html."

pictures: $(READY)
	$(BIN)/python -m tests.browser.pictures docs/pictures
	$(BIN)/python -m tests.browser.states build/states

tutorials: $(READY)
	$(BIN)/python -m tests.browser.tutorials

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(KERNELS)

# What setup has built is not built again: its folder has a target for the plain tests.
test-kernels: build/thread/built build/address/built
	$(CTEST) --test-dir build/thread
	$(CTEST) --test-dir build/address

build/%/built: $(READY) $(KERNELS) kernels/test/CMakeLists.txt
	$(BIN)/cmake -S . -B $(@D) -G Ninja -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja \
		-DTNT_PYTHON=OFF -DTNT_SANITIZE=$*
	$(BIN)/cmake --build $(@D) --target kernels_tests
	@touch $@

clean:
	rm -rf tnt_notebook/comm/_kernels.pyi .venv .local build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
