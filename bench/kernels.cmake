# Benches of kernels/: linear (kernel alone), *_vs_torch.py over a C library that only they load.
add_executable(bench_linear ${CMAKE_CURRENT_LIST_DIR}/linear.cpp)
ipexrun_target(bench_linear)
target_link_libraries(bench_linear PRIVATE ipexrun_kernels)
add_test(NAME bench_linear COMMAND bench_linear --smoke)
set_tests_properties(bench_linear PROPERTIES LABELS bench TIMEOUT 120)

add_library(ipexrun_kernels_capi SHARED ${CMAKE_CURRENT_LIST_DIR}/kernels_capi.cpp)
ipexrun_target(ipexrun_kernels_capi)
target_link_libraries(ipexrun_kernels_capi PRIVATE ipexrun_kernels Threads::Threads)
set_target_properties(ipexrun_kernels_capi PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
if(IPEXRUN_TORCH_VERSION AND NOT IPEXRUN_SANITIZE)
  foreach(bench activation attention attention_grad between conv decode gemm linear normalize reorder)
    add_test(NAME bench_${bench}_vs_torch COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/${bench}_vs_torch.py
             $<TARGET_FILE:ipexrun_kernels_capi> --smoke)
    set_tests_properties(bench_${bench}_vs_torch PROPERTIES LABELS bench TIMEOUT 120)
  endforeach()
endif()
