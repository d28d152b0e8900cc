# Imported targets from the installed torch wheel: torch::headers, torch::c10, torch::cpu, torch::torch and, where the
# wheel carries them, the CUDA ones. torch's own CMake config is not used: that of a CUDA wheel stops without a CUDA
# toolkit, while its headers and libraries link without one.
#   -DTRIREME_TORCH_DIR=…/site-packages/torch   picks a wheel; the default is asked of the Python that builds a package
#   (scikit-build-core names it), then of .venv, then of python3.
set(TRIREME_TORCH_DIR "" CACHE PATH "folder of the installed torch package")
if(NOT TRIREME_TORCH_DIR)
  foreach(python ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/.venv/bin/python python3)
    execute_process(
      COMMAND ${python} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE rc)
    if(rc EQUAL 0)
      set(TRIREME_TORCH_DIR ${found} CACHE PATH "folder of the installed torch package" FORCE)
      break()
    endif()
  endforeach()
endif()
if(NOT EXISTS ${TRIREME_TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "no torch wheel found in '${TRIREME_TORCH_DIR}': run `make setup`, or pass -DTRIREME_TORCH_DIR=<site-packages>/torch")
endif()

file(STRINGS ${TRIREME_TORCH_DIR}/version.py version_line REGEX "^__version__ = ")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TRIREME_TORCH_VERSION "${version_line}")
file(STRINGS ${CMAKE_SOURCE_DIR}/python/torch-version.txt minimum_line REGEX "^minimum ")
string(REGEX MATCH "[0-9.]+" torch_minimum "${minimum_line}")
if(TRIREME_TORCH_VERSION VERSION_LESS torch_minimum)
  message(FATAL_ERROR "torch ${TRIREME_TORCH_VERSION} is older than the supported ${torch_minimum} (python/torch-version.txt)")
endif()

add_library(torch::headers INTERFACE IMPORTED)
target_include_directories(torch::headers SYSTEM INTERFACE ${TRIREME_TORCH_DIR}/include
                           ${TRIREME_TORCH_DIR}/include/torch/csrc/api/include)
target_compile_definitions(torch::headers INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)

function(torch_library name file)
  add_library(torch::${name} SHARED IMPORTED)
  set_target_properties(torch::${name} PROPERTIES IMPORTED_LOCATION ${TRIREME_TORCH_DIR}/lib/lib${file}.so)
  target_link_libraries(torch::${name} INTERFACE torch::headers)
endfunction()
torch_library(c10 c10)
torch_library(cpu torch_cpu)
add_library(torch::torch INTERFACE IMPORTED)
target_link_libraries(torch::torch INTERFACE torch::cpu torch::c10 Threads::Threads)
set(TRIREME_TORCH_CUDA OFF)
if(EXISTS ${TRIREME_TORCH_DIR}/lib/libtorch_cuda.so)
  set(TRIREME_TORCH_CUDA ON)
  torch_library(c10_cuda c10_cuda)
  torch_library(cuda torch_cuda)
  # libtorch_cuda registers its kernels at load time; nothing of ours names its symbols, so the linker must keep it.
  target_link_libraries(torch::torch INTERFACE -Wl,--no-as-needed torch::cuda torch::c10_cuda -Wl,--as-needed)
endif()
# The CUDA wheel's libraries resolve NVIDIA's from neighbouring packages at run time, not at our link.
target_link_options(torch::torch INTERFACE -Wl,--allow-shlib-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs)
message(STATUS "torch ${TRIREME_TORCH_VERSION} from ${TRIREME_TORCH_DIR} (CUDA wheel: ${TRIREME_TORCH_CUDA})")
