# Every target makes the virtual environment it needs; Python 3.10 or later, pip, make and a C++ compiler suffice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD_FILES := pyproject.toml CMakeLists.txt $(wildcard cpp/*)

.PHONY: demo test test-quick test-times lint format bench docs dist wheels test-wheels sanitize sanitize-threads faults fuzz soak clean

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# What the demo needs, and no more, which is fetched and unpacked while the kernels are compiled; Python's own modules
# are compiled when they are first used, most of them never.
DEMO_NEEDS := $(shell sed -n -e 's/^dependencies = \[\(.*\)\]/\1/p' -e 's/^report = \[\(.*\)\]/\1/p' pyproject.toml | tr -d ,)
$(VENV)/installed-demo: $(VENV)/bin/python $(BUILD_FILES)
	@echo "Building perturbmap in $(VENV) (half a minute the first time) ..."
	@$(BIN)/python -m pip install --quiet --no-compile $(DEMO_NEEDS) & needs=$$!; \
		$(BIN)/python -m pip install --quiet --no-compile --no-deps --editable .; built=$$?; \
		wait $$needs && exit $$built
	@touch $@

# All extras, and the tools. The CPU build of torch, a tenth as large, where its index can be reached; else what PyPI has.
TORCH := $(shell sed -n 's/.*"\(torch==[0-9.]*\)".*/\1/p' pyproject.toml)
$(VENV)/installed: $(VENV)/bin/python $(BUILD_FILES)
	@echo "Building perturbmap and its extras in $(VENV) (a minute or two the first time) ..."
	$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet --retries 0 --timeout 10 \
		--index-url https://download.pytorch.org/whl/cpu "$(TORCH)" 2>/dev/null || true
	$(BIN)/python -m pip install --quiet --editable ".[test,lint]"
	@touch $@

$(VENV)/installed-bench: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	@touch $@

# One fold of the handwriting experiment, all methods: under a minute after the build.
demo: $(VENV)/installed-demo
	@rm -rf build/demo
	$(BIN)/perturbmap reproduce ocr --quick --out build/demo

# A process for each core, and one thread of BLAS and of OpenMP in each; tests of threads say how many they want. A
# process that has no work left takes some from another: modules stay together, and their fixtures are made once.
# Compiled tests are kept, whatever the environment says: without them, every process compiles all of them.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal

test: $(VENV)/installed
	$(PYTEST) --cpu-times check

# Without the functions that take more than 0.3 CPU seconds, which test-times has measured.
test-quick: $(VENV)/installed
	$(PYTEST) -q -m "not not_quick"

test-times: $(VENV)/installed
	$(PYTEST) --cpu-times write

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# make bench ONLY=word runs the lines whose name has the word, SECTION=word the sections; WRITE=docs/benchmarks.md puts
# the sections that were run in place of those on the page.
bench: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks $(if $(ONLY),--only "$(ONLY)") $(if $(SECTION),--section "$(SECTION)") \
		$(if $(WRITE),--write "$(WRITE)")

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

$(VENV)/installed-wheels: $(VENV)/installed-dist
	$(BIN)/python -m pip install --quiet --editable ".[wheels]"
	@touch $@

# Every python3.N on the path that runs, or make wheels PYTHONS="python3.11 /opt/python/3.13/bin/python".
PYTHONS ?= $(foreach minor,10 11 12 13 14,$(shell python3.$(minor) -c 'print("python3.$(minor)")' 2>/dev/null))

# Wheels for Linux on two processors, beside the source distribution they are made of; docs/releasing.md has more.
wheels: $(VENV)/installed-wheels
	rm -rf dist
	$(BIN)/python -m build --sdist --outdir dist
	$(BIN)/python .ci/build_wheels.py dist $(PYTHONS)
	$(BIN)/python -m twine check --strict dist/*

# Those for this processor, each installed and used in a clean environment of every Python.
test-wheels:
	set -e; for python in $(PYTHONS); do .ci/test_wheel $$python; done

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	@touch $@

# The site, offline: build/docs/html/index.html. Warnings are errors, and so are broken links.
docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html -d build/docs/doctrees docs build/docs/html
	$(BIN)/python docs/check_links.py build/docs/html

# Builds for tests alone, each with an environment of its own: (name, what to install, definition for CMake).
define special_build
.venv-$(1)/installed: $$(BUILD_FILES)
	$$(PYTHON) -m venv .venv-$(1)
	.venv-$(1)/bin/python -m pip install --quiet --upgrade pip
	.venv-$(1)/bin/python -m pip install --quiet --editable "$(2)" -Cbuild-dir=build/$(1) -Ccmake.define.$(3)
	@touch $$@
endef
$(eval $(call special_build,sanitize,.[test],PERTURBMAP_SANITIZE=address))
$(eval $(call special_build,threads,.[test],PERTURBMAP_SANITIZE=thread))
$(eval $(call special_build,faults,.,PERTURBMAP_FAULTS=ON))
LIBRARY = $$($${CXX:-g++} -print-file-name=$(1))
ASAN = LD_PRELOAD="$(call LIBRARY,libasan.so) $(call LIBRARY,libubsan.so)" UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1

# The kernels under AddressSanitizer and UndefinedBehaviorSanitizer, on the instances of the test suite.
sanitize: .venv-sanitize/installed
	$(ASAN) ASAN_OPTIONS=detect_leaks=0 .venv-sanitize/bin/python -m pytest -p no:cacheprovider -m "not slow" tests

# The kernels under ThreadSanitizer, on the tests that run them on several threads.
sanitize-threads: .venv-threads/installed
	LD_PRELOAD="$(call LIBRARY,libtsan.so)" TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1 \
		.venv-threads/bin/python -m pytest -p no:cacheprovider tests/test_threads.py tests/test_reproducible.py \
		tests/test_conformance.py -k "not memory and not blas"

# Every allocation of the kernels made to fail once.
faults: .venv-faults/installed
	.venv-faults/bin/python -m fuzz.faults

# Until something breaks: make fuzz MINUTES=5 SEED=1; make fuzz CASE="structures:12345" for one case alone; SANITIZE=1
# for the sanitised build, whose limit of one allocation stands for that of memory.
FUZZ := -m fuzz --minutes $(or $(MINUTES),1) $(if $(SEED),--seed $(SEED)) $(CASE)
ifdef SANITIZE
fuzz: .venv-sanitize/installed
	$(ASAN) ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024 \
		.venv-sanitize/bin/python $(FUZZ)
else
fuzz: $(VENV)/installed
	$(BIN)/python $(FUZZ)
endif

# Fits, predictions, files and stores at random for a long time: memory, open files and threads must be flat.
soak: $(VENV)/installed
	$(BIN)/python -m fuzz.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

clean:
	rm -rf build dist docs/gallery $(VENV) .venv-*
