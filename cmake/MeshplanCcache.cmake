# A compiler's cache, where ccache is installed (scripts/setup.sh does that for the presets ci and
# asan): what was compiled in one clone is found from another, in another folder.
find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Debug information may name the folder of the clone that filled the cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${CMAKE_CURRENT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${CCACHE_PROGRAM})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

# What is installed names the sources by their path in the project, not by the folder in which they
# were built. ccache makes paths below CCACHE_BASEDIR relative to the folder in which the compiler
# runs; it ignores the value of -fmacro-prefix-map, but not inside -Xcompiler.
cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_BINARY_DIR}
           OUTPUT_VARIABLE from_build)
set(absolute -fmacro-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}/=)
set(relative -fmacro-prefix-map=${from_build}/=)
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${absolute};${relative}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=$<IF:$<BOOL:${CMAKE_CUDA_COMPILER_LAUNCHER}>,${relative},${absolute}>>")
