# Makefile - builds lockstep and runs its tests.  GNU make, no configure step.
#
#   make                the program, build/lockstep; says what this machine has
#   make demo           what is missing is installed, then lockstep sizes one model three ways
#                       and trains a small network on two processes
#   make test           what is missing is installed, then every test; needs no GPU, no display
#   make check          the same without looking at what is installed
#   make san            unit and command-line tests under address and undefined-behaviour checks
#   make tsan           the tests that have threads, under the thread sanitizer
#   make fuzz           each fuzzer for FUZZ_SECONDS (20) seconds; needs clang
#   make gpu            compiles what needs CUDA, where nvcc is found
#   make bench          the benchmarks of this program itself (tests/bench/)
#   make accuracy       predictions beside measurements: tables as Markdown, a plot as SVG
#   make bless          accept what the command-line tests print now (read the diff first)
#   make check-format   is the source as clang-format would write it?  make format writes it so
#   make install        into PREFIX (/usr/local), below DESTDIR; make uninstall takes it out
#   make clean          removes every build folder
#
#   CC=clang            another compiler            SAN=1     with sanitizers (SAN=thread)
#   WERROR=             warnings do not stop it     SUITES=.. which tests (see tests/run_tests.sh)
#   FUZZ_SEED=1         the same fuzzing each time  CUDA_HOME=DIR  where CUDA is
#   V=1                 show the commands
#
# Each compiler and sanitizer has its own folder: build, build-clang, build-san ...
# Sources are found by folder; adding a file needs no change here.

MAKEFLAGS += --no-builtin-rules
ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX ?= /usr/local
WERROR ?= -Werror
FUZZ_SECONDS ?= 20
FUZZ_SEED ?= 0
SUITES ?= unit cli exec house format gpu

# ---- what is built where ---------------------------------------------------------------

SANITIZED := $(if $(SAN),$(if $(filter thread,$(SAN)),-tsan,-san))
VARIANT := $(patsubst -gcc,,-$(notdir $(firstword $(CC))))$(SANITIZED)$(if $(FUZZER),-fuzz)
BUILD := build$(VARIANT)

LIB_CJSON := -lcjson
LIB_Z := -lz
LIB_M := -lm
LIB_PTHREAD := -lpthread
LIB_SQLITE := -lsqlite3
LIB_DL := -ldl
LIBS := $(LIB_CJSON) $(LIB_SQLITE) $(LIB_Z) $(LIB_M) $(LIB_PTHREAD) $(LIB_DL)

WARNINGS := -Wall -Wextra -Wpedantic -Wconversion -Wshadow $(WERROR)
DEFINES := -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE \
           -DLOCKSTEP_SHARE_DIR='"$(PREFIX)/share/lockstep"'
OPTIMIZE := -O2
SANITIZE :=
ifneq ($(SAN)$(FUZZER),)
OPTIMIZE := -O1
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
endif
ifeq ($(SAN),thread)
SANITIZE := -fsanitize=thread -fno-omit-frame-pointer
endif
ifneq ($(FUZZER),)
SANITIZE += -fsanitize=fuzzer-no-link
endif
# -ffp-contract=off: a fused multiply-add would make numbers depend on the machine.
ALL_CFLAGS := -std=c11 $(DEFINES) -I. $(OPTIMIZE) -g -ffp-contract=off $(WARNINGS) $(SANITIZE) \
              $(CFLAGS)
ALL_LDFLAGS := $(SANITIZE) $(LDFLAGS)
# The loops of the CPU's kernels are written to be vectorised, which gcc 12 does at -O3.
ifeq ($(SAN)$(FUZZER),)
$(BUILD)/obj/exec/kernels%.o $(BUILD)/obj/exec/data.o: private ALL_CFLAGS += -O3
endif
# Half of a build's time would go into optimising tests that run for milliseconds.
$(foreach f,unit property exec,$(BUILD)/obj/tests/$(f)/%.o): private ALL_CFLAGS += -O0
$(BUILD)/obj/tests/unit/test_fabric.o: private ALL_CFLAGS += -O1

FOLDERS := core core/patterns sim sim/strategy exec profile traces viz
# Plugins that lockstep loads at run time; they link CUDA, lockstep does not.
PLUGINS := $(wildcard exec/backend_cuda*.c profile/capture*.c)
SOURCES := $(sort $(filter-out $(PLUGINS),$(foreach f,$(FOLDERS),$(wildcard $(f)/*.c))))
OBJECTS := $(SOURCES:%.c=$(BUILD)/obj/%.o)
ARCHIVE := $(BUILD)/liblockstep.a

programs = $(patsubst %.c,$(BUILD)/%,$(wildcard $(1)))
TESTS := $(call programs,tests/unit/test_*.c tests/property/test_*.c)
BENCHES := $(call programs,tests/bench/bench_*.c)
FUZZERS := $(call programs,tests/fuzz/fuzz_*.c)
# Those that have threads, or processes that do.
THREADED := $(call programs,$(shell grep -lE 'include [<"](pthread|tests/(exec|rank)_world)' \
                                    tests/unit/test_*.c tests/property/test_*.c))
EXEC_RANKS := $(call programs,tests/exec/*.c)
CLI_RUNNER := $(BUILD)/tests/cli_runner
FORMATTED := lockstep.c $(foreach f,$(FOLDERS) $(patsubst %/,%,$(wildcard tests/ tests/*/)), \
                                    $(wildcard $(f)/*.c $(f)/*.h $(f)/*.cu))

# ---- CUDA: CUDA_HOME if given, /usr/local/cuda, nvcc in PATH, or Python's nvidia wheels --

ifneq ($(origin CUDA_HOME),command line)
CUDA_HOME := $(shell sh tests/find_cuda.sh)
endif
NVCC := $(if $(CUDA_HOME),$(wildcard $(CUDA_HOME)/bin/nvcc))
no_nvcc := no bin/nvcc in $(or $(CUDA_HOME),CUDA_HOME or /usr/local/cuda nor in PATH)

# ---- make, make demo, make install -----------------------------------------------------

.PHONY: all lockstep demo test check tests san tsan threaded fuzz fuzzers gpu gpu-clean \
        bench accuracy bless check-format format install uninstall clean FORCE
.SECONDARY:
.DELETE_ON_ERROR:

all: lockstep
lockstep: $(BUILD)/lockstep

ifeq ($(filter-out all lockstep,$(MAKECMDGOALS)),)
header_found = $(shell echo '\#include <$(1)>' | $(CC) -E - >/dev/null 2>&1 && echo yes)
found = $(if $(1),$(info ✓ $(2)),$(info ✗ $(2): $(3)))
how := not found; sh tests/setup.sh installs it
$(call found,$(shell command -v $(firstword $(CC))),compiler $(CC),$(how))
$(call found,$(call header_found,cjson/cJSON.h),cJSON,$(how))
$(call found,$(call header_found,zlib.h),zlib,$(how))
$(call found,$(call header_found,sqlite3.h),SQLite,$(how))
$(call found,$(NVCC),CUDA$(if $(NVCC), in $(CUDA_HOME)),$(no_nvcc); only 'make gpu' needs it)
endif

# As many jobs as cores, unless the caller said how many.
parallel = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

demo:
	@sh tests/setup.sh
	@$(MAKE) --no-print-directory $(parallel) $(BUILD)/lockstep
	@LOCKSTEP=$(BUILD)/lockstep sh tests/demo.sh

install: $(BUILD)/lockstep
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/lockstep
	install $(BUILD)/lockstep $(DESTDIR)$(PREFIX)/bin/lockstep
	cp -R scenarios $(DESTDIR)$(PREFIX)/share/lockstep/

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/lockstep
	rm -rf $(DESTDIR)$(PREFIX)/share/lockstep

clean:
	rm -rf build build-*

# ---- tests -----------------------------------------------------------------------------

test:
	@sh tests/setup.sh test
	@$(MAKE) --no-print-directory check

check:
	@$(MAKE) --no-print-directory $(parallel) tests
	@BUILD=$(BUILD) MAKE='$(MAKE)' CUDA_HOME='$(CUDA_HOME)' sh tests/run_tests.sh $(SUITES)

tests: $(BUILD)/lockstep $(CLI_RUNNER) $(EXEC_RANKS) $(TESTS)

san:
	@$(MAKE) --no-print-directory SAN=1 SUITES="unit cli" check

tsan:
	@$(MAKE) --no-print-directory $(parallel) SAN=thread threaded
threaded: $(THREADED)
	@BUILD=$(BUILD) SECONDS_MAX=400 sh tests/run_tests.sh \
	    $(patsubst $(BUILD)/tests/%,program:%,$(THREADED))

bless: $(BUILD)/lockstep $(CLI_RUNNER)
	@for t in tests/cli/*.test; do \
	    LOCKSTEP=$(CURDIR)/$(BUILD)/lockstep ROOT=$(CURDIR) $(CLI_RUNNER) --bless $$t; done

check-format:
	@clang-format --dry-run -Werror $(FORMATTED) || { echo "(make format writes it so)"; exit 1; }
format:
	clang-format -i $(FORMATTED)

# The tables of the README, and PLOT, the picture beside them.
PLOT ?= $(BUILD)/accuracy.svg
accuracy: $(BUILD)/lockstep
	@$(BUILD)/lockstep validate published vtrain-single-node --markdown --svg $(PLOT)
	@echo "the plot is in $(PLOT)" >&2

bench: $(BENCHES)
	@all=0; for b in $(BENCHES); do echo "$$b"; $$b || all=1; done; exit $$all
	@$(if $(BENCHES),,echo "no benchmarks in tests/bench/ yet")

fuzz:
	@sh tests/setup.sh test
	@$(MAKE) --no-print-directory $(parallel) CC=clang FUZZER=1 fuzzers
fuzzers: $(FUZZERS)
	@BUILD=$(BUILD) FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_SEED=$(FUZZ_SEED) \
	    sh tests/run_fuzz.sh $(FUZZERS)

# Defines gpu and gpu-clean, with CUDA_HOME, NVCC and BUILD.
ifneq ($(NVCC),)
-include tests/gpu/Makefile.inc
else
gpu:
	@echo "gpu: skipped, $(no_nvcc)"
endif

# ---- rules -----------------------------------------------------------------------------

say = $(if $(V),,@echo "  $(1)" &&)

$(BUILD)/lockstep: $(BUILD)/obj/lockstep.o $(ARCHIVE)
	$(call say,ld $@) $(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

$(ARCHIVE): $(OBJECTS) $(BUILD)/sources
	@rm -f $@
	$(call say,ar $@) $(AR) rcs $@ $(OBJECTS)

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,cc $<) $(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(TESTS) $(BENCHES) $(EXEC_RANKS) $(CLI_RUNNER): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(ARCHIVE)
	@mkdir -p $(@D)
	$(call say,ld $@) $(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

$(FUZZERS): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(ARCHIVE)
	@mkdir -p $(@D)
	$(call say,ld $@) $(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)

# Other flags, or a source more or less, rebuild what depends on them.
stamp = @mkdir -p $(@D); echo '$(subst ','\'',$(1))' | cmp -s - $@ || \
        echo '$(subst ','\'',$(1))' >$@
$(BUILD)/flags: FORCE
	$(call stamp,$(CC) $(ALL_CFLAGS))
$(BUILD)/sources: FORCE
	$(call stamp,$(SOURCES))

-include $(OBJECTS:.o=.d) $(BUILD)/obj/lockstep.d $(BUILD)/obj/tests/cli_runner.d
-include $(patsubst $(BUILD)/%,$(BUILD)/obj/%.d,$(TESTS) $(BENCHES) $(EXEC_RANKS) $(FUZZERS))
