"""The command line, ``perturbmap``: its commands, and errors in one line."""

from __future__ import annotations

import sys

import click

import perturbmap
from perturbmap.cli.annotate import annotate
from perturbmap.cli.exit_codes import EXIT_ERROR, EXIT_INTERRUPTED
from perturbmap.cli.infer import infer
from perturbmap.cli.prepare_voc import prepare_voc
from perturbmap.cli.reproduce_horses import horses
from perturbmap.cli.reproduce_msrc import msrc
from perturbmap.cli.reproduce_ocr import ocr
from perturbmap.cli.reproduce_tagging import tagging
from perturbmap.cli.segment import segment

_ABOUT = """Structured prediction by perturb-and-MAP.

The library is used from Python (import perturbmap). This command cuts things out of images, solves models in
the file format of the UAI inference competitions, and regenerates the experiments of the paper that the library
implements, with a report to open in a browser.

\b
Try:
  perturbmap annotate photos           masks for photos, by a few strokes on a page in the browser
  perturbmap segment --help            from a folder of images and some masks to masks for others
  perturbmap infer model.uai           its log-partition function, best labelling and marginals
  perturbmap reproduce ocr --quick     one fold, under a minute
  perturbmap reproduce ocr             the whole table, up to half an hour
  perturbmap reproduce horses --help   segmentation: masks, boxes, images with neither
  perturbmap reproduce msrc --help     photos cut into twenty-one classes
  perturbmap reproduce tagging --help  parts of speech, by named features of words
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, help=_ABOUT)
@click.version_option(perturbmap.__version__, prog_name="perturbmap")
@click.option("--debug", is_flag=True, help="Show the whole traceback of an error.")
def cli(debug: bool) -> None:
    """All commands; `main` reads --debug by itself."""


cli.add_command(annotate)
cli.add_command(segment)
cli.add_command(infer)
cli.add_command(prepare_voc)


class GoesOn(click.Group):
    """Commands that, interrupted, go on where they stopped."""

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command; Ctrl-C with a word of what is kept."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted. What is finished is kept: the same command goes on from there.", err=True)
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


@cli.group(cls=GoesOn)
def reproduce() -> None:
    """Run the experiments: the paper's tables, and two that are not in it.

    Each experiment writes results.json and report.html into a folder. After an interruption, the same command goes on
    where it stopped.
    """


reproduce.add_command(ocr)
reproduce.add_command(horses)
reproduce.add_command(msrc)
reproduce.add_command(tagging)


def main() -> None:
    """The entry point: errors in one line, unless ``--debug`` asks for more."""
    try:
        sys.exit(cli.main(standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        click.echo(f"Error: {_words(error)} (perturbmap --debug ... shows where)", err=True)
        sys.exit(EXIT_ERROR)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__
