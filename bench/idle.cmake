# What ipexrun costs where it has nothing to do (bench/idle.py), and while it looks for something (bench/duel.py).
if(TARGET ipexrun AND TARGET ipexrun_plugin AND TARGET ipexrun_torch_cpu AND NOT IPEXRUN_SANITIZE)
  add_executable(idle_host ${CMAKE_CURRENT_LIST_DIR}/idle_host.cpp)
  target_compile_features(idle_host PRIVATE cxx_std_20)
  target_link_libraries(idle_host PRIVATE ipexrun::torch_cpu ${IPEXRUN_TORCH_LIB_DIR}/libtorch.so)
  add_test(NAME bench_idle COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/idle.py --smoke --build ${PROJECT_BINARY_DIR})
  add_test(NAME bench_duel COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/duel.py --smoke --build ${PROJECT_BINARY_DIR})
  set_tests_properties(bench_idle bench_duel PROPERTIES LABELS "bench;torch;whole" TIMEOUT 120)
endif()
