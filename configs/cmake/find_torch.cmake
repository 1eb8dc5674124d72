# Which Python and which torch this build is for. Sets IPEXRUN_PYTHON_EXECUTABLE, and, where a torch was found and is wanted,
# IPEXRUN_TORCH_VERSION ("2.13"), IPEXRUN_TORCH_INCLUDES, IPEXRUN_TORCH_LIB_DIR and the target ipexrun::torch_cpu.
#
# torch's own CMake config is not used: it pulls in CUDA, MKL and Caffe2 checks of the machine that built the wheel, and newer
# ones ask for a newer CMake than Debian 12 has. The plugin needs three include folders and libtorch_cpu, libc10 and libtorch.

# The interpreter is remembered: a later `cmake --build` that configures again must not find another one.
set(_python_candidates "$ENV{IPEXRUN_PYTHON}" "${IPEXRUN_PYTHON}" "${IPEXRUN_PYTHON_EXECUTABLE}" "${Python_EXECUTABLE}" "${PYTHON_EXECUTABLE}")
list(REMOVE_ITEM _python_candidates "")
if(NOT _python_candidates)
  find_program(IPEXRUN_PATH_PYTHON NAMES python3 python)
  set(_python_candidates "${IPEXRUN_PATH_PYTHON}")
endif()
list(GET _python_candidates 0 _python)
set(IPEXRUN_PYTHON_EXECUTABLE "${_python}" CACHE FILEPATH "Interpreter that has torch; tests run under it" FORCE)

if(IPEXRUN_PLUGIN)
  if(Torch_DIR) # <torch>/share/cmake/Torch: a libtorch archive or a wheel's folder
    get_filename_component(_torch_root ${Torch_DIR}/../../.. ABSOLUTE)
    if(EXISTS ${_torch_root}/version.py)
      file(STRINGS ${_torch_root}/version.py _torch_version REGEX "^__version__")
    elseif(EXISTS ${_torch_root}/build-version)
      file(STRINGS ${_torch_root}/build-version _torch_version)
    endif()
  elseif(IPEXRUN_PYTHON_EXECUTABLE)
    # find_spec does not import torch: the answer takes milliseconds and needs none of its libraries.
    execute_process(COMMAND ${IPEXRUN_PYTHON_EXECUTABLE} -c
      "import importlib.util as u; s=u.find_spec('torch'); print(s.submodule_search_locations[0] if s and s.submodule_search_locations else '')"
      OUTPUT_VARIABLE _torch_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(_torch_root AND EXISTS ${_torch_root}/version.py)
      file(STRINGS ${_torch_root}/version.py _torch_version REGEX "^__version__")
    endif()
  endif()
  string(REGEX MATCH "([0-9]+)\\.([0-9]+)" IPEXRUN_TORCH_VERSION "${_torch_version}")
  if(IPEXRUN_TORCH_VERSION AND EXISTS ${_torch_root}/lib/libtorch_cpu.so AND EXISTS ${_torch_root}/include/ATen/ATen.h)
    set(IPEXRUN_TORCH_LIB_DIR ${_torch_root}/lib)
    set(IPEXRUN_TORCH_INCLUDES ${_torch_root}/include ${_torch_root}/include/torch/csrc/api/include)
    add_library(ipexrun_torch_cpu INTERFACE)
    add_library(ipexrun::torch_cpu ALIAS ipexrun_torch_cpu)
    target_include_directories(ipexrun_torch_cpu SYSTEM INTERFACE ${IPEXRUN_TORCH_INCLUDES})
    target_compile_definitions(ipexrun_torch_cpu INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
    target_link_libraries(ipexrun_torch_cpu INTERFACE ${IPEXRUN_TORCH_LIB_DIR}/libtorch_cpu.so ${IPEXRUN_TORCH_LIB_DIR}/libc10.so)
    message(STATUS "ipexrun: plugin for torch ${IPEXRUN_TORCH_VERSION} at ${_torch_root}")
  else()
    set(IPEXRUN_TORCH_VERSION "")
    message(STATUS "ipexrun: no torch found (set IPEXRUN_PYTHON to an interpreter that has it): launcher, shim and kernels are built, the plugin and its tests are left out")
  endif()
endif()
