"""Sphinx: `make docs` builds the site offline, warnings being errors."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "perturbmap"
author = "The perturbmap developers"
copyright = "the perturbmap developers, BSD 3-clause"
version = release = installed_version("perturbmap")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "mathml",  # this one and those below are ours, in _ext
    "plain_docstrings",
    "decision_links",
]
exclude_patterns = ["_ext", "README.md", "**/*.ipynb", "**/*.py", "**/*.md5", "**/*.zip", "**/*.json"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}

# Pages are Markdown; the anchors of their headings are those that GitHub makes.
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("Floats", "Labels", "Mask", "Offsets")}
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
autosummary_generate = False

nitpicky = True
nitpick_ignore_regex = [
    # Other libraries' names: resolving them takes their inventories, which are on the network.
    (r"py:.*", r"(numpy|np|scipy|sp|sklearn|collections|os|pathlib|typing|types|enum|abc|torch)\..*"),
    (r"py:.*", r"(NDArray|ArrayLike|BaseEstimator|Sequence|Mapping|Iterable|Callable|Hashable|Iterator|Any|Path)"),
    # Names for types, explained once on the first page of the reference.
    (
        r"py:.*",
        r"(Floats|Labels|Mask|Offsets|Boxes|Pixels|Rng|Callback|Pullback|Path_|Progress|Rows|Shards|AnyMasks|Value)",
    ),
    (
        r"py:.*",
        r"(Tensor|Ragged|Make|Definition|Part|FromMarginals|SpanLike|ExactMarginals|Sentences|Mark|Painted|Cells|Fixing)",
    ),
    (r"py:.*", r"TypeAliasForwardRef"),  # of one of these in a union, as Sphinx makes it
    # Type variables.
    (r"py:.*", r"([ST]|\w+\[S\])"),
]

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"^(?!.*plot_)",  # scripts for the command line are no part of it
    "backreferences_dir": None,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "min_reported_time": 3600,
    "image_scrapers": ("matplotlib",),
    "capture_repr": (),
    "within_subsection_order": "gallery_order.GalleryOrder",
    "plot_gallery": "True",
}

html_theme = "furo"
html_title = "perturbmap"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
highlight_language = "none"  # of blocks that name none: commands and what they print
pygments_style = "friendly"
pygments_dark_style = "github-dark"
