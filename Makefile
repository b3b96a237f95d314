# make demo      see Lookout work, on any machine with Python 3.10 or later; ends by itself
# make page      the same with its page in a browser, until Ctrl-C
# make run       run config.yaml until Ctrl-C
# make bench     measure Lookout here, on a drawn street; prints medians, writes a report into bench-results, in two minutes
# make test      everything that needs no GPU; says the same on a busy machine
# make speed     what is promised of rates and latencies; on a machine that does nothing else
# make test-long the tests that take minutes each or repeat others elsewhere, and planted defects of the kernels
# make test-oldest  what calls a library, with the oldest ones that are allowed: PYTHON=python3.10, 3.11 or 3.12
# make test-newest  what calls FFmpeg, of which newer Pythons have a newer one: PYTHON=python3.13 or later
# make coverage  make test, and which lines nothing runs
# make lint      what CI checks beside the tests
# make docs      the documents as a site with search, in build/docs; a warning is an error
# make linkcheck whether the documents' links to other sites lead anywhere; asks those sites
# make soak      an hour (MINUTES=60) of everything that can go wrong around a daemon
# make install   into /opt/lookout and /etc/lookout, with a systemd unit; as root; make uninstall takes it away again
# make deb       a Debian package for this machine's Debian and Python, in build/deb
# make image     build the CPU image and try it; as root, with Debian's buildah and runc, no container daemon
# make lock      the hashes of what container images install
# make dist      source distributions and wheels of the client and of the daemon, in build/dist, checked
# make sbom      what is installed here, for who must know (CycloneDX)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
# Processes that tests are shared out among, by file: most wait more than they work. 0 for none but make's own.
WORKERS ?= 4
# CI installs by other means, and narrows what is installed: PIP_ARGS="-c tests/oldest.txt"
PIP_INSTALL ?= $(BIN)/python -m pip install --quiet --disable-pip-version-check
PIP_ARGS ?=
# Lookout asks for it by version; no index need have it.
CLIENT := -e ./client

MINUTES ?= 60
SOAK_ARGS ?=
# make image: IMAGE_ARGS="--base my/python:3.12 --volume /etc/pip.conf:/etc/pip.conf:ro"
IMAGE_ARGS ?=
# make install: DESTDIR for packagers; EXTRAS=gpu,http on a machine with an NVIDIA GPU
DESTDIR ?=
override DESTDIR := $(abspath $(DESTDIR))
EXTRAS ?= http
# A lock file whose versions and hashes are installed, instead of the newest packages of EXTRAS.
LOCK :=
# Where it will lie: make deb says other places.
APP := /opt/lookout
UNITS := /etc/systemd/system
BINARIES := /usr/local/bin
SHARE := /usr/local/share
CONFIG := config.yaml
HOME_DIR := $(DESTDIR)$(APP)
HOME_PIP = $(HOME_DIR)/bin/python -m pip install --quiet --disable-pip-version-check
OF_DAEMON = $(HOME_DIR)/lib/python3*/site-packages/lookoutd-*.dist-info
ETC_DIR := $(DESTDIR)/etc/lookout
UNIT_DIR := $(DESTDIR)$(UNITS)
BIN_DIR := $(DESTDIR)$(BINARIES)
SHARE_DIR := $(DESTDIR)$(SHARE)
DOC_DIR := $(DESTDIR)/usr/share/doc/lookout
ROTATED := $(DESTDIR)/etc/logrotate.d/lookout
SERVICES := lookout.service lookout@.service lookout-dashboard.service lookout-bridge.service
# Man pages and completions are written by a Python that has what Lookout needs.
MANUAL_PYTHON := $(HOME_DIR)/bin/python
WRITTEN := man/man1/lookout.1 man/man5/lookout.yaml.5 bash-completion/completions/lookout \
  zsh/vendor-completions/_lookout zsh/site-functions/_lookout fish/vendor_completions.d/lookout.fish
# make deb: DEB_LOCK= and PIP_NO_DEPS=1 for a small one that cannot run, DEB_ARGS=--compression=none for a quick one
DEB_DIR := build/deb
DEB_LOCK := requirements/cpu.lock
DEB_ARGS :=

.PHONY: demo page run bench test test-long test-oldest test-newest coverage speed lint format config schemas docs linkcheck soak deb image lock dist sbom install uninstall clean

demo: $(VENV)/http
	@$(BIN)/lookout demo

page: $(VENV)/http
	@$(BIN)/lookout demo --dashboard

run: $(VENV)/base
	@$(BIN)/lookout run -c config.yaml

bench: $(VENV)/bench
	@$(BIN)/lookout bench run --sources 4 --lanes 1 --max-batch 8 --seconds 8 --out bench-results

test: $(VENV)/dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

# All else is the same Python, whatever the library. What numba compiles takes as long as the rest: CI leaves it out.
LIBRARY_TESTS := $(addprefix tests/,$(addsuffix .py,$(addprefix contract/test_,cutter detector packet_tap sink source) \
  $(addprefix daemon/test_,children columns config ffmpeg frame_rate hls key_pictures log logins messages odd_lists packets \
    publisher redirects rtsp_times size_changes skipping source_store splices) \
  $(addprefix calibration/test_,classification frames portable) $(addprefix detectors/test_,accuracy_record detections engine \
    exports half heads labels memory ort providers tensor_types unknown_models weights)))
COMPILED_TESTS ?= $(addprefix tests/,contract/test_stage.py daemon/test_app.py analytics/test_compiled_step.py)

test-oldest:
	@$(MAKE) test VENV=.venv-oldest PIP_ARGS="-c tests/oldest.txt" WORKERS=0 \
	  PYTEST_ARGS="-m 'not slow' $(LIBRARY_TESTS) $(COMPILED_TESTS) $(PYTEST_ARGS)"

FFMPEG_TESTS := $(addprefix tests/,contract/test_source.py $(addsuffix .py,$(addprefix daemon/test_,ffmpeg frame_rate hls \
  key_pictures odd_lists packets redirects rtsp_times size_changes skipping splices)))

test-newest:
	@$(MAKE) test VENV=.venv-newest WORKERS=0 PYTEST_ARGS="-m 'not slow' $(FFMPEG_TESTS) $(PYTEST_ARGS)"

coverage: $(VENV)/dev
	@$(MAKE) test PYTEST_ARGS="--cov --cov-report=term $(PYTEST_ARGS)"

speed: $(VENV)/dev
	$(BIN)/python -m pytest -m speed tests/speed $(PYTEST_ARGS)

test-long: $(VENV)/dev
	$(BIN)/python -m pytest -m long $(PYTEST_ARGS)
	$(BIN)/python -m tests.kernel_mutants

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

config: $(VENV)/base
	$(BIN)/python -m tests.reference

schemas: $(VENV)/base
	$(BIN)/python -m lookout.messages docs/schema

docs: $(VENV)/docs
	@$(BIN)/python -m sphinx -W --keep-going -n -q docs build/docs
	@echo build/docs/index.html

linkcheck: $(VENV)/docs
	@$(BIN)/python -m sphinx -n -q -b linkcheck docs build/linkcheck

soak: $(VENV)/dev
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(SOAK_ARGS)

image: $(VENV)/dev
	@$(BIN)/python -m tests.image $(IMAGE_ARGS)

lock: $(VENV)/dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@for target in "cpu" "gpu --extra gpu"; do set -- $$target; name=$$1; shift; \
	  echo ./client | $(BIN)/uv pip compile pyproject.toml - --extra http --extra bridge --extra evidence $$* --generate-hashes --universal --python-version 3.10 --quiet \
	    --no-emit-package lookout-client --no-emit-index-url --custom-compile-command "make lock" -o requirements/$$name.lock; done

dist:
	@rm -rf build/dist
	@$(PYTHON) -m venv build/tools && build/tools/bin/python -m pip install --quiet --disable-pip-version-check build twine
	@build/tools/bin/python -m build --outdir build/dist client
	@build/tools/bin/python -m build --outdir build/dist
	@build/tools/bin/python -m twine check --strict build/dist/*

sbom: $(VENV)/base
	@$(PYTHON) -m venv build/sbom && build/sbom/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom
	@build/sbom/bin/cyclonedx-py environment --output-reproducible --of JSON --pyproject pyproject.toml \
	  -o build/sbom.cdx.json $(BIN)/python
	@echo build/sbom.cdx.json

install:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Lookout needs Python 3.10 or later"; exit 2; }
	@install -d -m 755 $(HOME_DIR) $(ETC_DIR)/models $(UNIT_DIR) $(BIN_DIR) $(DOC_DIR)/docs $(dir $(ROTATED))
	@[ -x $(HOME_DIR)/bin/python ] || $(PYTHON) -m venv $(HOME_DIR)
	@[ -z "$(LOCK)" ] || $(HOME_PIP) --require-hashes -r $(LOCK)
# What setuptools has left here of another version would come into the wheels. The client's files belonged to a lookoutd of
# before, which takes them along when pip removes it.
	@rm -rf build/lib build/bdist.* client/build
	@owners=$$(grep -ls '^lookout/' $(OF_DAEMON)/RECORD); $(HOME_PIP) $(if $(LOCK),--no-deps ./client .,--upgrade ./client '.[$(EXTRAS)]') && { [ -z "$$owners" ] || $(HOME_PIP) --force-reinstall --no-deps ./client; }
	@[ -z "$(DESTDIR)" ] || grep -rlIF "$(HOME_DIR)" $(HOME_DIR)/bin $(HOME_DIR)/pyvenv.cfg | \
	  xargs -r sed -i "s|$(HOME_DIR)|$(APP)|g"  # where it will lie
	@install -D -m 644 deploy/backup.py $(HOME_DIR)/share/lookout/backup.py
	@install -m 644 models/demo.onnx $(ETC_DIR)/models/
	@[ -e $(ETC_DIR)/config.yaml ] || install -m 644 $(CONFIG) $(ETC_DIR)/config.yaml
	@[ -e $(ETC_DIR)/environment ] || install -m 600 /dev/null $(ETC_DIR)/environment
	@for unit in $(SERVICES); do sed "s|/opt/lookout|$(APP)|" systemd/$$unit >$(UNIT_DIR)/$$unit; done
	@ln -sfn $(APP)/bin/lookout $(BIN_DIR)/lookout
	@install -m 644 README.md CHANGELOG.md LICENSE THIRD_PARTY.md $(DOC_DIR)/
	@install -m 644 docs/*.md $(DOC_DIR)/docs/
	@$(MANUAL_PYTHON) -B -m tests.manual $(SHARE_DIR) 2>/dev/null || \
	  echo "No man pages: they are made with the packages that Lookout needs: python -m tests.manual $(SHARE_DIR)"
	@[ -e $(ROTATED) ] || install -m 644 deploy/logrotate.conf $(ROTATED)
	@[ -n "$(DESTDIR)" ] || systemctl daemon-reload || true
	@echo "Installed. Edit $(ETC_DIR)/config.yaml, then: systemctl enable --now lookout"

uninstall:
	@[ -n "$(DESTDIR)" ] || systemctl disable --now lookout lookout-dashboard lookout-bridge 2>/dev/null || true
	@rm -f $(addprefix $(UNIT_DIR)/,$(SERVICES)) $(addprefix $(SHARE_DIR)/,$(WRITTEN))
	@[ "$$(readlink $(BIN_DIR)/lookout)" != $(APP)/bin/lookout ] || rm $(BIN_DIR)/lookout
	@rm -rf $(HOME_DIR) $(DOC_DIR)
	@! cmp -s deploy/logrotate.conf $(ROTATED) || rm $(ROTATED)
	@[ -n "$(DESTDIR)" ] || systemctl daemon-reload || true
	@echo "Removed. $(ETC_DIR) and /var/lib/lookout, /var/cache/lookout, /var/log/lookout are yours to keep or delete."

# With the Python that the package will find: Debian's own.
deb:
	@rm -rf $(DEB_DIR)/root && mkdir -p $(DEB_DIR)/root
	@export SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || date +%s)} PIP_NO_COMPILE=1; $(MAKE) --no-print-directory install DESTDIR=$(DEB_DIR)/root PYTHON=/usr/bin/python3 LOCK=$(DEB_LOCK) \
	  APP=/usr/lib/lookout UNITS=/usr/lib/systemd/system BINARIES=/usr/bin SHARE=/usr/share \
	  CONFIG=deploy/debian/config.yaml >/dev/null
	@/usr/bin/python3 deploy/debian/package.py $(DEB_DIR)/root $(DEB_DIR) $(DEB_ARGS)

clean:
	rm -rf .venv .venv-* build *.egg-info client/build client/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Lookout needs Python 3.10 or later; $(PYTHON) is older: make PYTHON=/path/to/python3.10 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "install Python's venv module first: apt install python3-venv"; exit 2; }

$(VENV)/base: $(BIN)/python pyproject.toml client/pyproject.toml
	@echo "Installing Lookout into $(VENV) ..."
	@$(PIP_INSTALL) $(PIP_ARGS) $(CLIENT) -e .
	@touch $@

$(VENV)/http: $(VENV)/base
	@$(PIP_INSTALL) $(PIP_ARGS) $(CLIENT) -e '.[http]'
	@touch $@

$(VENV)/bench: $(VENV)/base
	@$(PIP_INSTALL) $(PIP_ARGS) $(CLIENT) -e '.[bench]'
	@touch $@

$(VENV)/docs: $(VENV)/base
	@$(PIP_INSTALL) $(PIP_ARGS) $(CLIENT) -e '.[docs]'
	@touch $@

$(VENV)/dev: $(BIN)/python pyproject.toml client/pyproject.toml
	@echo "Installing Lookout and all that its tests need into $(VENV) ..."
	@$(PIP_INSTALL) $(PIP_ARGS) $(CLIENT) -e '.[dev]'
	@touch $(VENV)/base $@
