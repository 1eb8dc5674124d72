# Device xpu beside torch's for CUDA, its products beside CLBlast's. Here: do they run, on whatever OpenCL has.
if(TARGET ipexrun_xpu AND NOT IPEXRUN_SANITIZE)
  foreach(bench xpu_vs_cuda xpu_allocations)
    add_test(NAME bench_${bench} COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/${bench}.py --smoke --build ${PROJECT_BINARY_DIR})
    set_tests_properties(bench_${bench} PROPERTIES LABELS "bench;torch;whole" TIMEOUT 300 SKIP_RETURN_CODE 77
                         ENVIRONMENT "IPEXRUN_XPU=any;OMP_NUM_THREADS=1;OMP_WAIT_POLICY=passive")
  endforeach()
  add_test(NAME bench_xpu_clblast COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/xpu_clblast.py --smoke)
  set_tests_properties(bench_xpu_clblast PROPERTIES LABELS "bench;whole" TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
