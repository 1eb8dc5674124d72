# Training loops (bench/training_*.py).
if(TARGET ipexrun AND TARGET ipexrun_plugin AND TARGET ipexrun_hook AND NOT IPEXRUN_SANITIZE)
  add_test(NAME bench_training COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/training_speed.py --smoke --build ${PROJECT_BINARY_DIR})
  add_test(NAME bench_training_profile COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/training_profile.py --smoke --build ${PROJECT_BINARY_DIR})
  add_test(NAME bench_training_curves COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/training_curves.py --smoke --build ${PROJECT_BINARY_DIR})
  add_test(NAME bench_loader_cores COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/loader_cores.py --smoke --build ${PROJECT_BINARY_DIR})
  add_test(NAME bench_training_convolutions COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/training_convolutions.py --smoke)
  set_tests_properties(bench_training bench_training_convolutions bench_training_profile bench_training_curves bench_loader_cores PROPERTIES LABELS "bench;torch;whole" TIMEOUT 300)
endif()
