# Single products: stock, each candidate and selection (bench/op_tier.py).
if(TARGET ipexrun_plugin)
  add_test(NAME bench_op_tier_smoke COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/op_tier.py --smoke --build ${PROJECT_BINARY_DIR})
  set_tests_properties(bench_op_tier_smoke PROPERTIES LABELS "bench;torch" TIMEOUT 120)
endif()
# Stock against its limits, the operators that the tier leaves to it.
if(IPEXRUN_TORCH_VERSION AND NOT IPEXRUN_SANITIZE)
  add_test(NAME bench_survey_smoke COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/survey.py --smoke --threads 1)
  set_tests_properties(bench_survey_smoke PROPERTIES LABELS "bench;torch" TIMEOUT 300)
endif()
