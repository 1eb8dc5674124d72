# Graphs as programs of the plugin (bench/compiled_images.py).
if(TARGET ipexrun_plugin AND NOT IPEXRUN_SANITIZE)
  add_test(NAME bench_compiled_images_smoke COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/compiled_images.py --smoke --build ${PROJECT_BINARY_DIR})
  set_tests_properties(bench_compiled_images_smoke PROPERTIES LABELS "bench;torch" TIMEOUT 300)
endif()

# Whole programs beside what else could be chosen (bench/workloads.py).
if(TARGET ipexrun_plugin AND NOT IPEXRUN_SANITIZE)
  add_test(NAME bench_workloads_smoke COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/workloads.py --smoke --build ${PROJECT_BINARY_DIR})
  set_tests_properties(bench_workloads_smoke PROPERTIES LABELS "bench;torch;whole" TIMEOUT 300)
endif()

# Rows of element-wise operators (bench/rows_vs_torch.py).
if(TARGET ipexrun_plugin AND NOT IPEXRUN_SANITIZE)
  add_test(NAME bench_rows_smoke COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/rows_vs_torch.py --smoke --build ${PROJECT_BINARY_DIR})
  set_tests_properties(bench_rows_smoke PROPERTIES LABELS "bench;torch" TIMEOUT 120)
endif()

# When a program's calls are as fast as they get (bench/until_best.py).
if(TARGET ipexrun_plugin AND NOT IPEXRUN_SANITIZE)
  add_test(NAME bench_until_best_smoke COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/until_best.py --model tiny --seconds 2.5)
  set_tests_properties(bench_until_best_smoke PROPERTIES LABELS "bench;torch" TIMEOUT 120)
endif()

# How many results of few numbers miss the accuracy rule (bench/small_heads.py).
if(TARGET ipexrun_plugin AND NOT IPEXRUN_SANITIZE)
  add_test(NAME bench_small_heads_smoke COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/small_heads.py --batch 2 --seconds 0.5)
  set_tests_properties(bench_small_heads_smoke PROPERTIES LABELS "bench;torch" TIMEOUT 120)
endif()
