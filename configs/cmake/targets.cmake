# How every target of the project is compiled: one function, called by each folder's CMakeLists.txt.

# ipexrun_target(<name>): C++20, warnings, hidden symbols, position independent, includes from the top of the tree.
function(ipexrun_target name)
  target_compile_features(${name} PUBLIC cxx_std_20)
  set_target_properties(${name} PROPERTIES
    CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
                                         $<$<BOOL:${IPEXRUN_WERROR}>:-Werror>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>) # GCC bug 105651: false at -O3 for "x" + std::string
  endif()
  if(IPEXRUN_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${IPEXRUN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${name} PUBLIC -fsanitize=${IPEXRUN_SANITIZE})
  endif()
endfunction()

# ipexrun_room(<target> <room> <folder> <file> ...): files (without .cpp) that are compiled together, since reading torch's headers takes
# several times as long as what most files add to them. In a room, names in anonymous namespaces differ: a second one is an error, but a function there
# that has the name of one in a header hides that from the files that follow. -DIPEXRUN_UNITY=OFF compiles each alone, which suits work on one.
function(ipexrun_room target room folder)
  list(TRANSFORM ARGN REPLACE "(.+)" "${folder}\\1.cpp" OUTPUT_VARIABLE sources)
  target_sources(${target} PRIVATE ${sources})
  set_source_files_properties(${sources} PROPERTIES UNITY_GROUP ${room})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${IPEXRUN_UNITY} UNITY_BUILD_MODE GROUP)
endfunction()

# ipexrun_command(<name> LIBRARIES ...): a program that users call, from main.cpp, installed with its man page docs/<name>.1.
function(ipexrun_command name)
  cmake_parse_arguments(arg "" "" "LIBRARIES" ${ARGN})
  add_executable(${name} main.cpp)
  ipexrun_target(${name})
  target_compile_definitions(${name} PRIVATE IPEXRUN_VERSION="${PROJECT_VERSION}")
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(NOT SKBUILD) # a wheel has no place for man pages
    install(FILES ${PROJECT_SOURCE_DIR}/docs/${name}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
endfunction()

# ipexrun_sanitize_values(<name> [INLINE]): for sources that are one long line of loads and stores. Checks of every pointer's value and of
# every access in line would triple the time to compile them; arithmetic is still checked, and accesses by calls into the sanitizer's
# library (INLINE: in line, for loops that would wait for those calls).
function(ipexrun_sanitize_values name)
  if(IPEXRUN_SANITIZE MATCHES "undefined")
    target_compile_options(${name} PRIVATE -fno-sanitize=null,alignment,object-size,vptr,pointer-overflow)
  endif()
  if(NOT "INLINE" IN_LIST ARGN AND IPEXRUN_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name} PRIVATE --param asan-instrumentation-with-call-threshold=0)
  endif()
endfunction()

# ipexrun_unit_test(<name> SOURCES ... LIBRARIES ... [SAMPLE] [THREADS FILTER] [ARGUMENTS ...]): a GoogleTest binary under ctest with the label "unit".
# SAMPLE: small and full of memory that changes hands, so `./dev test` runs it under sanitizers too; `./dev test --all` runs all of them.
# THREADS: code that several threads run, so ThreadSanitizer's tree has it too, with the tests that match FILTER ('*' for all).
function(ipexrun_unit_test name)
  cmake_parse_arguments(arg "SAMPLE" "THREADS" "SOURCES;LIBRARIES;LABELS;ARGUMENTS" ${ARGN})
  set(arguments ${arg_ARGUMENTS})
  if(IPEXRUN_SANITIZE STREQUAL "thread")
    if(NOT arg_THREADS)
      return()
    endif()
    set(arguments "--gtest_filter=${arg_THREADS}")
  endif()
  add_executable(${name} ${arg_SOURCES})
  ipexrun_target(${name})
  if(NOT "ipexrun_kernels_test_support" IN_LIST arg_LIBRARIES)
    target_compile_options(${name} PRIVATE -O0) # half the time to compile them; references for kernels are loops that would crawl
  endif()
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gtest GTest::gmock GTest::gtest_main)
  add_dependencies(sanitized_tests ${name})
  if(arg_SAMPLE)
    add_dependencies(sanitized_sample ${name})
    list(APPEND arg_LABELS sample)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${arguments})
  set_tests_properties(${name} PROPERTIES LABELS "unit;${arg_LABELS}" TIMEOUT 300)
endfunction()

# ipexrun_pytest(<name> FILE [BESIDE] [LABELS ...] [ENVIRONMENT ...]): a pytest file under ctest, run by the Python that has torch.
# The label "whole" leaves a test, of any kind, to `./dev test --all`.
# BESIDE: other tests may run at the same time; one that plans for, pins to or waits for this machine has it for itself.
function(ipexrun_pytest name)
  cmake_parse_arguments(arg "BESIDE" "FILE;TIMEOUT" "LABELS;ENVIRONMENT;LAUNCHER" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  add_test(NAME ${name} COMMAND ${arg_LAUNCHER} ${IPEXRUN_PYTHON_EXECUTABLE} -m pytest -q -p no:cacheprovider ${PROJECT_SOURCE_DIR}/${arg_FILE}
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 5
    ENVIRONMENT "IPEXRUN_BUILD_DIR=${PROJECT_BINARY_DIR};PYTHONDONTWRITEBYTECODE=1;${arg_ENVIRONMENT}")
  if(NOT arg_BESIDE)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()
