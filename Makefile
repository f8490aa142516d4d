# Every target makes the virtual environment it needs; Python 3.10 or later, pip, make and a C++ compiler suffice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SANITIZE_VENV := .venv-sanitize
BUILD_FILES := pyproject.toml CMakeLists.txt $(wildcard cpp/*)

.PHONY: demo test lint format bench docs dist sanitize clean

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/installed: $(VENV)/bin/python $(BUILD_FILES)
	@echo "Building perturbmap in $(VENV) (a minute or two the first time) ..."
	$(BIN)/python -m pip install --quiet --editable ".[test,lint]"
	@touch $@

$(VENV)/installed-bench: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	@touch $@

# One fold of the handwriting experiment, all methods: under a minute after the build.
demo: $(VENV)/installed
	@rm -rf build/demo
	$(BIN)/perturbmap reproduce ocr --quick --out build/demo

test: $(VENV)/installed
	$(BIN)/python -m pytest

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# make bench ONLY=word runs the lines whose name has the word.
bench: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks $(if $(ONLY),--only "$(ONLY)")

$(VENV)/installed-dist: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable ".[dist]"
	@touch $@

# The source distribution, checked, then installed and used in an environment that has nothing else.
dist: $(VENV)/installed-dist
	rm -rf dist build/clean
	$(BIN)/python -m build --sdist --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet dist/*.tar.gz
	cd build/clean && bin/python -I ../../.ci/run_readme.py ../../README.md

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	@touch $@

# The site, offline: build/docs/html/index.html. Warnings are errors, and so are broken links.
docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html -d build/docs/doctrees docs build/docs/html
	$(BIN)/python docs/check_links.py build/docs/html

$(SANITIZE_VENV)/installed: $(BUILD_FILES)
	$(PYTHON) -m venv $(SANITIZE_VENV)
	$(SANITIZE_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(SANITIZE_VENV)/bin/python -m pip install --quiet --editable ".[test]" \
		-Cbuild-dir=build/sanitize -Ccmake.define.PERTURBMAP_SANITIZE=ON
	@touch $@

# The kernels under AddressSanitizer and UndefinedBehaviorSanitizer, on the instances of the test suite.
sanitize: $(SANITIZE_VENV)/installed
	LD_PRELOAD="$$($${CXX:-g++} -print-file-name=libasan.so) $$($${CXX:-g++} -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
		$(SANITIZE_VENV)/bin/python -m pytest -p no:cacheprovider -m "not slow" tests

clean:
	rm -rf build dist docs/gallery $(VENV) $(SANITIZE_VENV)
