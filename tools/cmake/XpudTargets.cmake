# xpud_library(name SRCS ... DEPS ... [PRIVATE_DEPS ...]): a static library; without SRCS, headers only.
function(xpud_library name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  if(arg_SRCS)
    add_library(${name} STATIC ${arg_SRCS})
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${arg_DEPS})
  endif()
endfunction()

# xpud_installed: everything that `cmake --install` copies from the build folder. xpud_install_needs(target ...) adds targets to it.
add_custom_target(xpud_installed)
function(xpud_install_needs)
  add_dependencies(xpud_installed ${ARGN})
endfunction()

# xpud_binary(name SRCS ... DEPS ...): an installed program.
function(xpud_binary name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  xpud_install_needs(${name})
endfunction()

# xpud_test(name SRCS ... DEPS ... [LABELS ...] [SHARDS n]): a GoogleTest program. ctest runs it as one test, or as n, each with a part of
# its cases. Labels select what a sanitizer preset builds and runs: `asan`, `tsan`.
function(xpud_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;SHARDS" "SRCS;DEPS;LABELS" ${ARGN})
  if(XPUD_CLIENT_ONLY)
    return()
  endif()
  if(XPUD_SANITIZE MATCHES "address" AND NOT "asan" IN_LIST arg_LABELS)
    return()
  endif()
  if(XPUD_SANITIZE MATCHES "thread" AND NOT "tsan" IN_LIST arg_LABELS)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SRCS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest_main)
  if(XPUD_FUZZ) # a fuzzer follows the product's branches; in a test's loops that doubles their time
    target_compile_options(${name} PRIVATE -fno-sanitize=fuzzer-no-link)
  endif()
  if(arg_SHARDS)
    math(EXPR last "${arg_SHARDS} - 1")
    foreach(shard RANGE ${last})
      add_test(NAME ${name}_${shard} COMMAND ${name})
      set_tests_properties(${name}_${shard} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
                           ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard}")
    endforeach()
  else()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
  endif()
  set_property(GLOBAL APPEND PROPERTY XPUD_TESTS ${name})
endfunction()

# xpud_grpc_library(name file.proto): messages and services of a file in this folder. Compiled without our warnings, because protoc generates it.
function(xpud_grpc_library name file)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  get_filename_component(stem ${file} NAME_WE)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set(out ${CMAKE_BINARY_DIR}/generated)
  set(base ${out}/${folder}/${stem})
  add_custom_command(
    OUTPUT ${base}.pb.cc ${base}.pb.h ${base}.grpc.pb.cc ${base}.grpc.pb.h
    COMMAND ${CMAKE_COMMAND} -E make_directory ${out}
    COMMAND protobuf::protoc -I ${CMAKE_SOURCE_DIR} --cpp_out=${out} --grpc_out=${out}
            --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin> ${source}
    DEPENDS ${source} protobuf::protoc gRPC::grpc_cpp_plugin
    COMMENT "Generating the code of ${folder}/${file}"
    VERBATIM)
  add_library(${name} STATIC ${base}.pb.cc ${base}.grpc.pb.cc)
  target_include_directories(${name} SYSTEM PUBLIC ${out})
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf gRPC::grpc++)
  target_compile_options(${name} PRIVATE -w -Wno-error -Wno-thread-safety)
  set_target_properties(${name} PROPERTIES CXX_CLANG_TIDY "")
endfunction()
