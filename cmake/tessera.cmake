# Compiler settings and the functions with which every folder declares itself.

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths are hashed relative to the source tree: another clone finds the same results. What is loosened is asked for
  # by ccache where headers are precompiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
# As on x86-64: elsewhere the compiler may make one operation of a product and a sum, and `char` may have no sign.
if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
  string(APPEND CMAKE_CXX_FLAGS " -ffp-contract=off -fsigned-char")
endif()
find_package(Threads REQUIRED)

add_library(tessera_compile_options INTERFACE)
target_compile_options(tessera_compile_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Wno-missing-field-initializers
  -Wno-restrict)  # g++ 12 reports std::string concatenation (GCC bug 105651)
if(TESSERA_WARNINGS_AS_ERRORS)
  target_compile_options(tessera_compile_options INTERFACE -Werror)
endif()
if(MOLD_PROGRAM AND NOT CMAKE_CROSSCOMPILING)
  target_link_options(tessera_compile_options INTERFACE -fuse-ld=mold)
endif()
foreach(sanitizer IN LISTS TESSERA_SANITIZE)
  target_compile_options(tessera_compile_options INTERFACE -fsanitize=${sanitizer} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(tessera_compile_options INTERFACE -fsanitize=${sanitizer})
endforeach()
# g++ takes a fifth of its time for looks at pointers that are null, wrap around or leave what they point into, where
# AddressSanitizer ends at the use of such a one. The fuzzers' clang looks.
if(undefined IN_LIST TESSERA_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(tessera_compile_options INTERFACE -fno-sanitize=null,pointer-overflow,object-size)
endif()
target_include_directories(tessera_compile_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(tessera_compile_options INTERFACE Threads::Threads)

# A program that nobody has built yet should be there in minutes, so optimising is for what runs often. INNER_LOOPS are
# the sources in which a step, a token or an element is worked on: they keep the build type's -O3, as kernels do. All
# others get -O1, which compiles in two thirds of the time, or -Og with sanitizers, in three quarters of what -O1 takes
# there. All presets but `debug` also compile several sources of a folder or a test as one (CMAKE_UNITY_BUILD), so that
# headers and what is instantiated from them (JSON) come once: tests take less than half of the time so, and the program's
# inner loops half. SEPARATE sources (of INNER_LOOPS as well) stay alone anywhere, as they have local names that
# others have too. `release` and `dev` compile the program alike: ccache has the one when the other was built.
# The presets `sanitizers`, `tsan` and `fuzz` are seldom built again after a change, and put 24 sources of a library into one,
# which takes three quarters of the time of the usual 8; kernels keep -O3 there too, since jobs of tests take ten times as
# long at -O1. Tests stay at 8: more of them use the same local names.
# Under AddressSanitizer they keep ten frames of where memory was allocated, not thirty: a fifth of their time.
if(TESSERA_SANITIZE)
  set(TESSERA_OFTEN_RUN -O1)
  set(TESSERA_SELDOM_RUN -Og)
  set(TESSERA_FOR_TESTS -O0)
  if(undefined IN_LIST TESSERA_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # They compile in two thirds of the time where alignment is not looked at, which is for the libraries, and where
    # AddressSanitizer calls functions at each access, in place of code of its own there.
    list(APPEND TESSERA_FOR_TESTS -fno-sanitize=alignment --param=asan-instrumentation-with-call-threshold=0)
  endif()
else()
  set(TESSERA_OFTEN_RUN $<$<CONFIG:Release>:-O3>)
  set(TESSERA_SELDOM_RUN $<$<CONFIG:Release>:-O1>)
  set(TESSERA_FOR_TESTS -Og)
endif()

# tessera_library(<folder> [SOURCES <files>] [INNER_LOOPS <files>] [SEPARATE <files>] [DEPENDS <folders>]
#                 [LIBRARIES <external targets>])
# One static library a folder, called tessera_<folder>.
function(tessera_library folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;INNER_LOOPS;SEPARATE;DEPENDS;LIBRARIES" ${ARGN})
  set_source_files_properties(${ARG_SEPARATE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(dependencies tessera_compile_options)
  foreach(dependency IN LISTS ARG_DEPENDS)
    list(APPEND dependencies tessera_${dependency})
  endforeach()
  if(ARG_INNER_LOOPS AND ARG_SOURCES AND NOT TESSERA_SANITIZE)
    # Sources that are optimised otherwise cannot be part of the same unit.
    list(REMOVE_ITEM ARG_SEPARATE ${ARG_INNER_LOOPS})
    add_library(tessera_${folder}_loops OBJECT ${ARG_INNER_LOOPS})
    target_link_libraries(tessera_${folder}_loops PRIVATE ${dependencies} ${ARG_LIBRARIES})
    set(ARG_INNER_LOOPS $<TARGET_OBJECTS:tessera_${folder}_loops>)
  endif()
  add_library(tessera_${folder} STATIC ${ARG_SOURCES} ${ARG_INNER_LOOPS} ${ARG_SEPARATE})
  if(ARG_SOURCES OR ARG_SEPARATE)
    target_compile_options(tessera_${folder} PRIVATE ${TESSERA_SELDOM_RUN})
  endif()
  target_link_libraries(tessera_${folder} PUBLIC ${dependencies} PRIVATE ${ARG_LIBRARIES})
endfunction()

# Seconds: what only a test that hangs takes, on any machine.
set(TESSERA_TEST_TIMEOUT 900)
if(TESSERA_SANITIZE)
  set(TESSERA_TEST_TIMEOUT 1800)
endif()

# tessera_test(<name> SOURCES <files> [SEPARATE <files>] DEPENDS <folders> [LABELS <labels>] [TIMEOUT <seconds>]
#              [EACH_SOURCE [PREFIX <prefix>]] [READS_SOURCE_TREE] [USES_REGEX] [COMPUTES])
# One GoogleTest program, test_<name>. Default label: fast. The sources of a test are optimised little, and not at all with
# sanitizers, and find the headers that most include compiled before (tests/CMakeLists.txt): half of the time that they
# would take to compile, unless it COMPUTES much by itself.
# One ctest entry <name> is the whole program: starting a process per test case costs more than most cases do.
# EACH_SOURCE: one entry <prefix>NAME for each source NAME_test.cpp: what takes long, or ends badly, runs apart, but all
# are compiled and linked together, which takes less than half of the time of a program for each.
# READS_SOURCE_TREE: the test finds files of the repository under TESSERA_SOURCE_DIR. USES_REGEX: g++ 12 with sanitizers takes parts of <regex> for reads of
# uninitialised variables (GCC bug 105562). What is labelled nightly runs only when asked for: ctest -C nightly -L nightly,
# which is what tools/nightly does.
function(tessera_test name)
  cmake_parse_arguments(ARG "EACH_SOURCE;READS_SOURCE_TREE;USES_REGEX;COMPUTES" "PREFIX;TIMEOUT"
    "SOURCES;SEPARATE;DEPENDS;LIBRARIES;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT ${TESSERA_TEST_TIMEOUT})
  endif()
  add_executable(test_${name} ${ARG_SOURCES} ${ARG_SEPARATE})
  set_target_properties(test_${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 8)
  set_source_files_properties(${ARG_SEPARATE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(NOT ARG_COMPUTES)
    target_compile_options(test_${name} PRIVATE ${TESSERA_FOR_TESTS})
    target_precompile_headers(test_${name} REUSE_FROM tessera_test_headers)
  endif()
  target_link_libraries(test_${name} PRIVATE tessera_compile_options tessera_test_main GTest::gtest ${ARG_LIBRARIES})
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR})
  if(ARG_USES_REGEX AND TESSERA_SANITIZE)
    target_compile_options(test_${name} PRIVATE -Wno-maybe-uninitialized)
  endif()
  if(ARG_READS_SOURCE_TREE)
    target_compile_definitions(test_${name} PRIVATE TESSERA_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  endif()
  foreach(dependency IN LISTS ARG_DEPENDS)
    target_link_libraries(test_${name} PRIVATE tessera_${dependency})
  endforeach()
  set(configurations)
  if(nightly IN_LIST ARG_LABELS)
    set(configurations CONFIGURATIONS nightly)
  endif()
  set(entries ${name})
  if(ARG_EACH_SOURCE)
    set(entries ${ARG_SOURCES} ${ARG_SEPARATE})
    list(FILTER entries INCLUDE REGEX "_test\\.cpp$")
  endif()
  foreach(entry IN LISTS entries)
    set(only)
    if(ARG_EACH_SOURCE)
      set(only --source ${entry})
      string(REGEX REPLACE "^(.*/)?(.*)_test\\.cpp$" "${ARG_PREFIX}\\2" entry ${entry})
    endif()
    add_test(NAME ${entry} COMMAND test_${name} --gtest_brief=1 ${only} ${configurations})
    set_tests_properties(${entry} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  endforeach()
endfunction()
