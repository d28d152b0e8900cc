# What `pip install .` carries besides the Python files: the extensions of trireme.stats and trireme.search, which need no torch, and
# the program, inside the package, with the torch it is built against (LibTorch keeps no binary compatibility between
# versions, so trireme/_program.py compares).
foreach(folder stats search)
  if(TARGET trireme_python_${folder})
    install(TARGETS trireme_python_${folder} LIBRARY DESTINATION trireme/${folder} COMPONENT python)
  endif()
endforeach()
if(TARGET trireme)
  set_target_properties(trireme PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib" BUILD_WITH_INSTALL_RPATH OFF)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/python/_build.py CONTENT
"\"\"\"Written by cmake/Install.cmake.\"\"\"

TORCH_VERSION = \"@TRIREME_TORCH_VERSION@\"
" @ONLY)
  install(TARGETS trireme RUNTIME DESTINATION trireme/bin COMPONENT python)
  install(FILES ${CMAKE_BINARY_DIR}/python/_build.py DESTINATION trireme COMPONENT python)
endif()
