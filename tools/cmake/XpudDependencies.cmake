# Dependencies on the system (tools/setup installs them by package name), and where they may be used.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
if(XPUD_CLIENT_ONLY)
  return()
endif()
find_package(GTest REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)  # the daemon's configuration; never in libxpud
find_package(CURL REQUIRED)           # xpud-node-agent asks the API server of Kubernetes
find_package(nlohmann_json REQUIRED)
find_package(benchmark REQUIRED)
find_library(ZE_LOADER ze_loader REQUIRED)
add_library(ze_loader INTERFACE)
target_link_libraries(ze_loader INTERFACE ${ZE_LOADER})

# ---- LLVM 22 (kernels/): the shared library, which links in a second; its headers need no other flags. For tools/bundle the parts that
# kernels/ uses, statically: a quarter of the size.
option(XPUD_STATIC_LLVM "link LLVM statically" OFF)
find_program(LLVM_CONFIG llvm-config-22 REQUIRED)
execute_process(COMMAND ${LLVM_CONFIG} --includedir OUTPUT_VARIABLE XPUD_LLVM_INCLUDE OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND ${LLVM_CONFIG} --libdir OUTPUT_VARIABLE XPUD_LLVM_LIBDIR OUTPUT_STRIP_TRAILING_WHITESPACE)
add_library(xpud_llvm INTERFACE)
if(XPUD_STATIC_LLVM)
  execute_process(COMMAND ${LLVM_CONFIG} --link-static --libfiles core support passes irreader linker bitreader object targetparser
                          orcjit x86codegen x86asmparser x86desc x86info nvptxcodegen nvptxdesc nvptxinfo spirvcodegen spirvdesc spirvinfo
                  OUTPUT_VARIABLE XPUD_LLVM OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(XPUD_LLVM)
  list(APPEND XPUD_LLVM z zstd)  # of what `--system-libs` names, all that these parts use
else()
  find_library(XPUD_LLVM LLVM-22 PATHS ${XPUD_LLVM_LIBDIR} REQUIRED)
endif()
target_include_directories(xpud_llvm SYSTEM INTERFACE ${XPUD_LLVM_INCLUDE})
target_compile_definitions(xpud_llvm INTERFACE __STDC_CONSTANT_MACROS __STDC_FORMAT_MACROS __STDC_LIMIT_MACROS)
target_link_libraries(xpud_llvm INTERFACE ${XPUD_LLVM})

# ---- oneDNN 3.2 for GNU OpenMP (kernels/library): PyPI onednn-cpu-gomp and onednn-devel-cpu-gomp, which tools/setup puts into .venv.
# Binaries find it by their run path: it is copied to build/<preset>/lib, and installed as the daemon's own.
set(XPUD_ONEDNN_ROOT ${CMAKE_SOURCE_DIR}/.venv CACHE PATH "prefix that holds oneDNN's include and lib")
find_path(XPUD_ONEDNN_INCLUDE oneapi/dnnl/dnnl.hpp PATHS ${XPUD_ONEDNN_ROOT}/include NO_DEFAULT_PATH)
find_file(XPUD_ONEDNN_LIBRARY libdnnl.so.3 PATHS ${XPUD_ONEDNN_ROOT}/lib NO_DEFAULT_PATH)
if(NOT XPUD_ONEDNN_INCLUDE OR NOT XPUD_ONEDNN_LIBRARY)
  message(FATAL_ERROR "no oneDNN in ${XPUD_ONEDNN_ROOT}: run `tools/setup --no-build`, which installs it into .venv, or set XPUD_ONEDNN_ROOT")
endif()
find_library(XPUD_GOMP libgomp.so.1 REQUIRED)
set(onednn_copy ${CMAKE_BINARY_DIR}/lib/libdnnl.so.3)
add_custom_command(OUTPUT ${onednn_copy} DEPENDS ${XPUD_ONEDNN_LIBRARY}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/lib
  COMMAND ${CMAKE_COMMAND} -E copy ${XPUD_ONEDNN_LIBRARY} ${onednn_copy})
add_custom_target(xpud_onednn_copy DEPENDS ${onednn_copy})
add_library(xpud_onednn INTERFACE)
add_dependencies(xpud_onednn xpud_onednn_copy)
target_include_directories(xpud_onednn SYSTEM INTERFACE ${XPUD_ONEDNN_INCLUDE})
add_library(xpud_onednn_shared SHARED IMPORTED GLOBAL)
set_target_properties(xpud_onednn_shared PROPERTIES IMPORTED_LOCATION ${onednn_copy} IMPORTED_SONAME libdnnl.so.3)
target_link_libraries(xpud_onednn INTERFACE xpud_onednn_shared ${XPUD_GOMP})
install(FILES ${XPUD_ONEDNN_LIBRARY} DESTINATION ${XPUD_PRIVATE_LIBDIR})
