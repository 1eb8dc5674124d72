# How often noise decides a race (docs/decisions/0046-noise.md).
if(TARGET ipexrun_select)
  add_executable(bench_race_noise ${CMAKE_CURRENT_LIST_DIR}/race_noise.cpp)
  ipexrun_target(bench_race_noise)
  target_link_libraries(bench_race_noise PRIVATE ipexrun_select)
  set_target_properties(bench_race_noise PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  add_test(NAME bench_race_noise COMMAND bench_race_noise)
  set_tests_properties(bench_race_noise PROPERTIES LABELS "bench;whole" TIMEOUT 60)
endif()
