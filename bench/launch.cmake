# Whole processes under quotas and in several instances, searched or not.
if(TARGET ipexrun AND TARGET hypertune AND TARGET ipexrun_plugin)
  foreach(question quota instances tuner_search launch_parts)
    add_test(NAME bench_${question} COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/${question}.py --smoke)
    set_tests_properties(bench_${question} PROPERTIES LABELS "bench;torch;whole" TIMEOUT 300
      ENVIRONMENT "PATH=${CMAKE_BINARY_DIR}/bin:$ENV{PATH};IPEXRUN_BUILD_DIR=${CMAKE_BINARY_DIR}")
  endforeach()
endif()
