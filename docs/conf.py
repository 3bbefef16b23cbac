"""The site: how Sphinx builds it. ``make docs`` runs it, with every warning an error."""

import sys
from pathlib import Path

from tnt_notebook import __version__

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "tnt_notebook"
release = version = __version__
copyright = "the authors of tnt_notebook"

extensions = [
    "without_tensorflow", "myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon",
    "cell_lexer", "gallery", "magic_help", "public_names", "signatures", "tables",
]  # fmt: skip
exclude_patterns = ["**/.ipynb_checkpoints"]
default_role = "literal"
smartquotes = False  # options begin with two dashes
python_maximum_signature_line_length = 88
highlight_language = "default"

nitpicky = True
nitpick_ignore_regex = [
    # Names of other packages are not looked up: a build needs no network.
    (r"py:.*", r"(?!tnt_notebook\.).*"),
    # Types of inner rooms, which signatures name.
    (r"py:class", r"tnt_notebook\.(cluster\.\w+|comm|telemetry)\.\w+\.\w+"),
    (r"py:class", r"tnt_notebook\.parallel\.layer_graph\.graph\.Call"),
    (r"py:class", r"tnt_notebook\.protocol\.\w+"),
    # What docstrings name for those who read the code.
    (r"py:(data|mod)", r"tnt_notebook\..*"),
]
suppress_warnings = ["ref.python"]  # an attribute that several classes have

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# What the notebooks say is what they said when they were last run: nothing is run here.
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {
    page: [] for page in ("index", "start", "errors", "ideas", "promises", "changes", "coming/*")
}
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
