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
#   make fuzz-campaign  every reader of traces, RUNS (10^8) inputs in all; make afl: with AFL++
#   make gpu            compiles what needs CUDA, where nvcc is found; gpu-pack, gpu-report:
#                       what travels to a machine with a GPU, what comes back (tests/gpu)
#   make bench          the benchmarks of this program itself (tests/bench/)
#   make accuracy       predictions beside measurements: tables as Markdown, a plot as SVG
#   make pictures       the README's pictures of the viewer, into pictures/
#   make bless          accept what the command-line tests print now (read the diff first)
#   make check-format   is the source as clang-format would write it?  make format writes it so
#   make install        into PREFIX (/usr/local), below DESTDIR; make uninstall takes it out
#   make clean          removes every build folder
#
#   CC=clang            another compiler            SAN=1     with sanitizers (SAN=thread)
#   WERROR=             warnings do not stop it (as with demo and install)
#   SUITES=..           which tests (see tests/run_tests.sh)
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
# Not for those who only want it to run: compilers and libraries not yet seen warn of new things.
WERROR ?= $(if $(filter demo install,$(MAKECMDGOALS)),,-Werror)
FUZZ_SECONDS ?= 20
FUZZ_SEED ?= 0
SUITES ?= unit cli exec house format gpu

# ---- what is built where ---------------------------------------------------------------

SANITIZED := $(if $(SAN),$(if $(filter thread,$(SAN)),-tsan,-san))
FUZZED := $(if $(FUZZER),-fuzz-$(FUZZER))
VARIANT := $(patsubst -gcc,,-$(notdir $(firstword $(CC))))$(SANITIZED)$(FUZZED)
BUILD := build$(VARIANT)

LIB_CJSON := -lcjson
LIB_Z := -lz
LIB_M := -lm
LIB_PTHREAD := -lpthread
LIB_SQLITE := -lsqlite3
LIB_DL := -ldl
LIB_PNG := -lpng
LIB_FREETYPE := -lfreetype
LIBS := $(LIB_CJSON) $(LIB_SQLITE) $(LIB_PNG) $(LIB_FREETYPE) $(LIB_Z) $(LIB_M) $(LIB_PTHREAD) \
        $(LIB_DL)

# Constants are enumerators here, which clang from 20 on would have cast before they meet a double.
WARNINGS := -Wall -Wextra -Wpedantic -Wconversion -Wshadow \
            -Wcast-align$(if $(filter gcc%,$(notdir $(firstword $(CC)))),=strict) \
            $(if $(findstring clang,$(CC)),-Wno-enum-float-conversion) $(WERROR)
DEFINES := -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE \
           -DLOCKSTEP_SHARE_DIR='"$(PREFIX)/share/lockstep"' \
           -DLOCKSTEP_LIB_DIR='"$(PREFIX)/lib/lockstep"'
OPTIMIZE := -O2
SANITIZE :=
ifneq ($(SAN)$(FUZZER),)
OPTIMIZE := -O1
# Of undefined behaviour not what -Wcast-align, a fault at address 0 and the address sanitizer
# catch: a quarter of the code.
SANITIZE := -fsanitize=address,undefined -fno-sanitize=null,alignment,object-size \
            -fno-sanitize-recover=all -fno-omit-frame-pointer
endif
ifeq ($(SAN),thread)
SANITIZE := -fsanitize=thread -fno-omit-frame-pointer
endif
# A campaign wants executions: undefined behaviour traps, memory is looked at afterwards.
ifeq ($(FUZZER),fast)
OPTIMIZE := -O2
SANITIZE := -fsanitize=undefined -fsanitize-trap=undefined
endif
# clang's sanitized builds count which code runs, so that tests and fuzzers share them; calls at
# every comparison would cost tests a tenth.
COUNTING := $(if $(filter clang%,$(notdir $(firstword $(CC)))),-fsanitize=fuzzer-no-link)
SANITIZE += $(if $(and $(filter 1,$(SAN))$(FUZZER),$(COUNTING)), \
                $(COUNTING) -fno-sanitize-coverage=trace-cmp)
# -ffp-contract=off: a fused multiply-add would make numbers depend on the machine.
ALL_CFLAGS := -std=c11 $(DEFINES) -I. $(OPTIMIZE) -g -ffp-contract=off $(WARNINGS) $(SANITIZE) \
              $(CFLAGS)
# A sanitizer's run time is large, and over a hundred programs link it.
ALL_LDFLAGS := $(SANITIZE) $(if $(COUNTING),$(if $(SAN),$(if $(shell command -v ld.lld), \
                   -fuse-ld=lld))) $(LDFLAGS)
# FreeType's headers lie in a folder of their own.
FREETYPE_CFLAGS := $(or $(shell pkg-config --cflags freetype2 2>/dev/null), \
                        -I/usr/include/freetype2)
$(BUILD)/obj/viz/font_file.o: private ALL_CFLAGS += $(FREETYPE_CFLAGS)
# Loops of the CPU's kernels, of sums and of the rasteriser are written to be vectorised, which
# gcc 12 does at -O3; those that compare or take roots only where nobody asks whether a number
# trapped or set errno, which changes none.
ifeq ($(SAN)$(FUZZER),)
$(addprefix $(BUILD)/obj/exec/,kernels.o kernels%.o data.o fabric_sum.o): private \
    ALL_CFLAGS += -O3 -fno-trapping-math -fno-math-errno
$(BUILD)/obj/viz/rast%.o: private ALL_CFLAGS += -O3
endif
# Half of a build's time would go into optimising tests that run for milliseconds.
$(foreach f,unit property exec,$(BUILD)/obj/tests/$(f)/%.o): private ALL_CFLAGS += -O0 \
    $(if $(COUNTING),-fno-sanitize=fuzzer-no-link)
$(foreach f,unit on_cpu,$(BUILD)/stand_in/tests/$(f)/test_%.o): private ALL_CFLAGS += -O0
$(BUILD)/obj/tests/unit/test_fabric.o $(BUILD)/obj/tests/unit/test_fsdp.o: private \
    ALL_CFLAGS += -O1

# Tests that have threads need none of the last two: make tsan does not compile them.
FOLDERS := core core/patterns sim sim/strategy exec traces \
           $(if $(filter threaded,$(MAKECMDGOALS)),,profile viz)
# Plugins that lockstep loads at run time; they link CUDA, lockstep does not.
PLUGINS := $(wildcard exec/backend_cuda*.c profile/capture*.c)
# The window of the viewer: its own executable, where SDL2 is.
WINDOW_SOURCES := $(sort $(wildcard viz/sdl_*.c))
SOURCES := $(sort $(filter-out $(PLUGINS) $(WINDOW_SOURCES), \
                               $(foreach f,$(FOLDERS),$(wildcard $(f)/*.c))))
OBJECTS := $(SOURCES:%.c=$(BUILD)/obj/%.o)
# With sanitizers optimising takes three times as long as the rest of compiling: what runs for
# long under tests is optimised, and what fuzzers run; under the thread sanitizer what has threads.
HOT := $(addprefix core/,arena graph intern json machine_tables numeral utf8) \
       $(addprefix exec/,backend_cpu bench_run data fabric% kernels% params program rendezvous% \
                         snapshot%) \
       $(addprefix sim/,caching% classes% cost% draft% engine% evq lower% maxmin memory% model% \
                        network pipeline% planner_% rank_group scenario% segments strategy/%) \
       traces/% $(addprefix profile/,align records%) $(addprefix viz/,fill font raster)
ifneq ($(SAN),)
HOT_HERE := $(if $(filter thread,$(SAN)),exec/% core/jobs,$(HOT))
$(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(addsuffix .c,$(HOT_HERE)),$(SOURCES))): private \
    ALL_CFLAGS += -O0
endif
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
# Tests of the CUDA backend on a stand-in for the device, tests/on_cpu/, and the tests of the
# CPU's kernels once more, each kernel beside its CUDA twin.  They need a C++ compiler.
CXX := $(if $(filter clang%,$(notdir $(firstword $(CC)))),clang++,g++)
HAS_CXX := $(if $(FUZZER)$(SAN),,$(shell command -v $(CXX)))
ON_CPU_TESTS := $(if $(HAS_CXX),$(call programs,tests/on_cpu/test_*.c))
ON_CPU_PLUGIN := $(if $(HAS_CXX),$(BUILD)/tests/on_cpu/lockstep-cuda.so)
TWINS := $(if $(HAS_CXX),$(patsubst tests/unit/test_%.c,$(BUILD)/tests/on_cpu/twin_%,$(wildcard \
             tests/unit/test_kernels*.c)))
FORMATTED := lockstep.c $(foreach f,$(FOLDERS) $(patsubst %/,%,$(wildcard tests/ tests/*/)), \
                                    $(wildcard $(f)/*.c $(f)/*.h $(f)/*.cu))

# ---- CUDA: CUDA_HOME if given, /usr/local/cuda, nvcc in PATH, or Python's nvidia wheels --

ifneq ($(origin CUDA_HOME),command line)
CUDA_HOME := $(shell sh tests/find_cuda.sh)
endif
NVCC := $(if $(CUDA_HOME),$(wildcard $(CUDA_HOME)/bin/nvcc))
# NCCL and cuBLASLt may lie elsewhere: wheels for CUDA 12 have a folder for each.
CUBLAS_HOME ?= $(CUDA_HOME)
NCCL_HOME ?= $(CUDA_HOME)
GPU_ARCH ?= 90
lib_in = $(firstword $(wildcard $(foreach d,lib64 lib lib/x86_64-linux-gnu,$(1)/$(d)/$(2))))
NCCL_H := $(firstword $(wildcard $(NCCL_HOME)/include/nccl.h /usr/include/nccl.h))
NCCL_LIB := $(or $(call lib_in,$(NCCL_HOME),libnccl.so*),$(call lib_in,/usr,libnccl.so*))
CUDA_LIBS := $(if $(NVCC),$(call lib_in,$(CUBLAS_HOME),libcublasLt.so*) $(NCCL_LIB))
CUDA_PLUGIN := $(if $(SAN)$(FUZZER),,$(if $(NVCC),$(if $(NCCL_H),$(BUILD)/lockstep-cuda.so)))
SDL_CFLAGS := $(shell pkg-config --cflags sdl2 2>/dev/null || sdl2-config --cflags 2>/dev/null)
SDL_LIBS := $(shell pkg-config --libs sdl2 2>/dev/null || sdl2-config --libs 2>/dev/null)
WINDOW := $(if $(SDL_LIBS),$(if $(WINDOW_SOURCES),$(BUILD)/lockstep-view))
no_nvcc := no bin/nvcc in $(or $(CUDA_HOME),CUDA_HOME or /usr/local/cuda nor in PATH)

# ---- make, make demo, make install -----------------------------------------------------

.PHONY: all lockstep demo test check tests on-cpu san tsan threaded fuzz fuzzers fuzz-campaign \
        fuzz-readers fuzz-replay replay-readers afl afl-readers gpu gpu-clean gpu-report \
        gpu-pack bake-font pictures bench accuracy bless check-format format install uninstall \
        clean FORCE
.SECONDARY:
.DELETE_ON_ERROR:

all: lockstep
lockstep: $(BUILD)/lockstep $(CUDA_PLUGIN) $(WINDOW)

ifeq ($(filter-out all lockstep,$(MAKECMDGOALS)),)
header_found = $(shell echo '\#include <$(1)>' | $(CC) $(2) -E - >/dev/null 2>&1 && echo yes)
found = $(if $(1),$(info ✓ $(2)),$(info ✗ $(2): $(3)))
how := not found; sh tests/setup.sh installs it
$(call found,$(shell command -v $(firstword $(CC))),compiler $(CC),$(how))
$(call found,$(call header_found,cjson/cJSON.h),cJSON,$(how))
$(call found,$(call header_found,zlib.h),zlib,$(how))
$(call found,$(call header_found,sqlite3.h),SQLite,$(how))
$(call found,$(call header_found,png.h),libpng,$(how))
$(call found,$(call header_found,ft2build.h,$(FREETYPE_CFLAGS)),FreeType,$(how))
$(call found,$(SDL_LIBS),SDL2,not found; only the window of 'lockstep view' needs it)
$(call found,$(CUDA_PLUGIN),CUDA$(if $(NVCC), in $(CUDA_HOME)),$(if $(NVCC),no nccl.h in \
    $(NCCL_HOME)/include: NCCL_HOME says where,$(no_nvcc)); only training on GPUs needs it)
endif

# As many jobs as cores, unless the caller said how many.
parallel = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

demo:
	@sh tests/setup.sh
	@$(MAKE) --no-print-directory $(parallel) WERROR=$(WERROR) $(BUILD)/lockstep
	@LOCKSTEP=$(BUILD)/lockstep sh tests/demo.sh

install: $(BUILD)/lockstep $(CUDA_PLUGIN) $(WINDOW)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/lockstep
	$(if $(CUDA_PLUGIN),install -D $(CUDA_PLUGIN) $(DESTDIR)$(PREFIX)/lib/lockstep/$(notdir \
	    $(CUDA_PLUGIN)))
	install $(BUILD)/lockstep $(WINDOW) $(DESTDIR)$(PREFIX)/bin
	cp -R scenarios $(DESTDIR)$(PREFIX)/share/lockstep/

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/lockstep $(DESTDIR)$(PREFIX)/bin/lockstep-view
	rm -rf $(DESTDIR)$(PREFIX)/share/lockstep $(DESTDIR)$(PREFIX)/lib/lockstep

clean:
	rm -rf build build-*

# ---- tests -----------------------------------------------------------------------------

test:
	@sh tests/setup.sh test
	@$(MAKE) --no-print-directory check

check:
	@$(MAKE) --no-print-directory $(parallel) tests
	@BUILD=$(BUILD) MAKE='$(MAKE)' CUDA_HOME='$(CUDA_HOME)' sh tests/run_tests.sh $(SUITES)

# nvcc first: one file of it takes as long as fifty others.
tests: $(if $(findstring clang,$(CC)),,$(CUDA_PLUGIN)) $(BUILD)/lockstep $(WINDOW) $(CLI_RUNNER) \
       $(EXEC_RANKS) $(TESTS) $(ON_CPU_TESTS) $(TWINS) $(ON_CPU_PLUGIN)

# The program, its window, and the CUDA side on its stand-in, whose tests run.
on-cpu:
	@$(MAKE) --no-print-directory $(parallel) $(BUILD)/lockstep $(WINDOW) $(ON_CPU_TESTS) $(TWINS) \
	    $(ON_CPU_PLUGIN)
	@BUILD=$(BUILD) sh tests/run_tests.sh on_cpu

# With clang where it is, and nobody asked for another: make fuzz then takes the same objects.
san:
	@$(MAKE) --no-print-directory SAN=1 SUITES="unit cli" $(if $(filter default \
	    file,$(origin CC)),$(if $(shell command -v clang),CC=clang)) check

tsan:
	@$(MAKE) --no-print-directory $(parallel) SAN=thread threaded
threaded: $(THREADED)
	@BUILD=$(BUILD) SECONDS_MAX=400 sh tests/run_tests.sh \
	    $(patsubst $(BUILD)/tests/%,program:%,$(THREADED))

pictures: $(BUILD)/lockstep
	@LOCKSTEP=$(BUILD)/lockstep sh tests/pictures.sh pictures

# The letters of viz/font_baked.c, from the files of Debian's fonts-inter.
INTER ?= /usr/share/fonts/opentype/inter
bake-font: $(BUILD)/tests/bake_font
	@$(BUILD)/tests/bake_font $(INTER)/Inter-Regular.otf $(INTER)/Inter-SemiBold.otf \
	    >$(BUILD)/font_baked.c
	mv $(BUILD)/font_baked.c viz/font_baked.c

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
	@$(BUILD)/lockstep validate torch-one-gpu run-one-gpu --markdown
	@echo "the plot is in $(PLOT)" >&2

bench: $(BENCHES)
	@all=0; for b in $(BENCHES); do echo "$$b"; $$b || all=1; done; exit $$all
	@$(if $(BENCHES),,echo "no benchmarks in tests/bench/ yet")

fuzz:
	@sh tests/setup.sh test
	@$(MAKE) --no-print-directory $(parallel) CC=clang SAN=1 fuzzers
fuzzers: $(FUZZERS)
	@BUILD=$(BUILD) FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_SEED=$(FUZZ_SEED) \
	    sh tests/run_fuzz.sh $(FUZZERS)

# The readers of traces; the other fuzzers look at what people and peers write.
READERS := $(filter %_kineto %_nsys %_chakra %_pytorch_et %_native %_nccl_tests %_rules \
                    %_unpack %_set,$(FUZZERS))
fuzz-campaign:
	@sh tests/setup.sh test
	@$(MAKE) --no-print-directory $(parallel) CC=clang FUZZER=fast fuzz-readers
fuzz-readers: $(READERS)
	@sh tests/fuzz_campaign.sh $(READERS)

fuzz-replay:
	@$(MAKE) --no-print-directory $(parallel) CC=clang SAN=1 replay-readers
replay-readers: $(READERS)
	@sh tests/fuzz_campaign.sh --replay $(READERS)

# The same with AFL++ (Debian: afl++), for AFL_SECONDS (20) each.
AFL_SECONDS ?= 20
afl:
	@command -v afl-clang-fast >/dev/null || \
	    { echo "afl-clang-fast is missing: apt-get install afl++"; exit 1; }
	@AFL_QUIET=1 $(MAKE) --no-print-directory $(parallel) CC=afl-clang-fast SAN=1 afl-readers
afl-readers: $(READERS)
	@BUILD=$(BUILD) AFL_SECONDS=$(AFL_SECONDS) sh tests/run_afl.sh $(READERS)

# Defines gpu and gpu-clean, with CUDA_HOME, NVCC and BUILD.
ifneq ($(NVCC),)
-include tests/gpu/Makefile.inc
gpu: $(CUDA_PLUGIN)
else
gpu:
	@echo "gpu: skipped, $(no_nvcc)"
endif

# What run.sh left in DIR becomes files of the tree and a section for the README; what a machine
# with a GPU may lack, as build-carry/carry.tar.gz.
gpu-report:
	@[ -n "$(DIR)" ] || { echo "gpu-report: say DIR=what-run.sh-left" >&2; exit 1; }
	@python3 tests/gpu/gpu_report.py "$(DIR)"
gpu-pack:
	@BUILD=$(BUILD) bash tests/gpu/pack.sh

# ---- rules -----------------------------------------------------------------------------

-include profile/capture.inc
say = $(if $(V),,@echo "  $(1)" &&)

# Plugins take what they need of lockstep from the program that loads them: -rdynamic.
$(BUILD)/lockstep: $(BUILD)/obj/lockstep.o $(ARCHIVE)
	$(call say,ld $@) $(CC) $(ALL_LDFLAGS) -rdynamic -o $@ $^ $(LIBS)

WINDOW_OBJECTS := $(WINDOW_SOURCES:%.c=$(BUILD)/obj/%.o)
$(WINDOW_OBJECTS): private ALL_CFLAGS += $(SDL_CFLAGS)
$(BUILD)/lockstep-view: $(WINDOW_OBJECTS) $(ARCHIVE)
	$(call say,ld $@) $(CC) $(ALL_LDFLAGS) -o $@ $^ $(SDL_LIBS) $(LIBS)

$(ARCHIVE): $(OBJECTS) $(BUILD)/sources
	@rm -f $@
	$(call say,ar $@) $(AR) rcs $@ $(OBJECTS)

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,cc $<) $(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

ORDINARY := $(TESTS) $(BENCHES) $(EXEC_RANKS) $(CLI_RUNNER) $(BUILD)/tests/bake_font
$(ORDINARY): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(ARCHIVE)
	@mkdir -p $(@D)
	$(call say,ld $@) $(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

$(FUZZERS): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(ARCHIVE)
	@mkdir -p $(@D)
	$(call say,ld $@) $(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)

# ---- the CUDA plugin -------------------------------------------------------------------------

# Without static guards and exceptions nvcc's launches need nothing of libstdc++.
CU_FLAGS := -std=c++17 -O2 -I. -gencode=arch=compute_$(GPU_ARCH),code=sm_$(GPU_ARCH) \
            -gencode=arch=compute_$(GPU_ARCH),code=compute_$(GPU_ARCH) \
            $(if $(WERROR),-Werror all-warnings) \
            -Xcompiler -fPIC,-fno-threadsafe-statics,-fno-exceptions,-fno-rtti,-Wall,-Wextra
PLUGIN_CFLAGS = $(ALL_CFLAGS) -fPIC -isystem $(CUDA_HOME)/include \
                -isystem $(CUBLAS_HOME)/include -isystem $(dir $(NCCL_H))
CUDA_OBJECTS := $(patsubst %,$(BUILD)/cuda/%.o,$(wildcard exec/cuda_*.cu exec/cuda_*.c \
                    exec/backend_cuda*.c))

$(BUILD)/cuda/%.cu.o: %.cu $(BUILD)/cuda-flags
	@mkdir -p $(@D)
	$(call say,nvcc $<) $(NVCC) $(CU_FLAGS) -MD -MF $(@:.o=.d) -c -o $@ $<

$(BUILD)/cuda/%.c.o: %.c $(BUILD)/flags $(BUILD)/cuda-flags
	@mkdir -p $(@D)
	$(call say,cc $< for the plugin) $(CC) $(PLUGIN_CFLAGS) -MMD -MP -c -o $@ $<

# Libraries are named by file: wheels have no links without a version.
$(BUILD)/lockstep-cuda.so: $(CUDA_OBJECTS)
	$(call say,ld $@) $(NVCC) -shared -cudart static -o $@ $^ $(CUDA_LIBS) \
	    $(foreach l,$(CUDA_LIBS),-Xlinker -rpath -Xlinker $(abspath $(dir $(l)))) -lpthread -lm

-include $(CUDA_OBJECTS:.o=.d)

# ---- the CUDA backend on a stand-in for the device ---------------------------------------

ON_CPU := $(BUILD)/stand_in
ON_CPU_OBJECTS := $(patsubst %,$(ON_CPU)/%.o,$(wildcard exec/cuda_*.cu exec/backend_cuda*.c \
                      tests/on_cpu/*.cu) $(filter-out tests/on_cpu/test_%.c,$(wildcard \
                      tests/on_cpu/*.c)))
ON_CPU_CFLAGS = $(ALL_CFLAGS) -fPIC -Itests/on_cpu -DCUDA_ON_CPU -DWORLD_TWIN
# Its threads jump between stacks, which Ubuntu's compilers would have glibc take for an attack.
ON_CPU_CXXFLAGS := -std=c++17 -fPIC -I. -Itests/on_cpu $(OPTIMIZE) -g -ffp-contract=off -Wall \
                   -U_FORTIFY_SOURCE \
                   -Wextra -Wno-unknown-pragmas $(WERROR) -DCUDA_ON_CPU \
                   -include tests/on_cpu/device.h

$(ON_CPU)/%.cu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,c++ $<) $(CXX) $(ON_CPU_CXXFLAGS) -MMD -MP -x c++ -c -o $@ $<

$(ON_CPU)/%.c.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,cc $< for the stand-in) $(CC) $(ON_CPU_CFLAGS) -MMD -MP -c -o $@ $<

$(ON_CPU)/cuda.a: $(ON_CPU_OBJECTS)
	@rm -f $@
	$(call say,ar $@) $(AR) rcs $@ $^

link_on_cpu = $(CXX) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)
$(ON_CPU_TESTS): $(BUILD)/tests/on_cpu/%: $(ON_CPU)/tests/on_cpu/%.c.o $(ON_CPU)/cuda.a $(ARCHIVE)
	@mkdir -p $(@D)
	$(call say,ld $@) $(link_on_cpu)
$(TWINS): $(BUILD)/tests/on_cpu/twin_%: $(ON_CPU)/tests/unit/test_%.c.o $(ON_CPU)/cuda.a $(ARCHIVE)
	@mkdir -p $(@D)
	$(call say,ld $@) $(link_on_cpu)

# The plugin itself on the stand-in, for tests/exec/capture.sh.
$(BUILD)/tests/on_cpu/lockstep-cuda.so: $(ON_CPU_OBJECTS) \
                                        $(patsubst %,$(ON_CPU)/%.o,$(wildcard exec/cuda_*.c))
	@mkdir -p $(@D)
	$(call say,ld $@) $(CXX) $(ALL_LDFLAGS) -shared -o $@ $^ $(LIBS)

-include $(ON_CPU_OBJECTS:.o=.d) $(wildcard $(ON_CPU)/tests/*/*.d)

# Other flags, or a source more or less, rebuild what depends on them.
stamp = @mkdir -p $(@D); echo '$(subst ','\'',$(1))' | cmp -s - $@ || \
        echo '$(subst ','\'',$(1))' >$@
$(BUILD)/flags: FORCE
	$(call stamp,$(CC) $(filter-out -Werror,$(ALL_CFLAGS)))
$(BUILD)/cuda-flags: FORCE
	$(call stamp,$(NVCC) $(filter-out -Werror all-warnings,$(CU_FLAGS) $(PLUGIN_CFLAGS)) $(CUDA_LIBS))
$(BUILD)/sources: FORCE
	$(call stamp,$(SOURCES))

-include $(OBJECTS:.o=.d) $(WINDOW_OBJECTS:.o=.d) $(BUILD)/obj/lockstep.d
-include $(BUILD)/obj/tests/cli_runner.d $(BUILD)/obj/tests/bake_font.d
-include $(patsubst $(BUILD)/%,$(BUILD)/obj/%.d,$(TESTS) $(BENCHES) $(EXEC_RANKS) $(FUZZERS))
