# Toolchain file of the page that is the classroom: Debian's clang, libc++ and WASI library.
# docs/decisions/007-webassembly.md says why these, and what is missing in them.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(MESHPLAN_LLVM 19 CACHE STRING "Version of Debian's clang, lld and libc++ for WebAssembly")
set(CMAKE_C_COMPILER clang-${MESHPLAN_LLVM})
set(CMAKE_CXX_COMPILER clang++-${MESHPLAN_LLVM})
set(CMAKE_AR llvm-ar-${MESHPLAN_LLVM} CACHE FILEPATH "Archives of WebAssembly objects")
set(CMAKE_RANLIB llvm-ranlib-${MESHPLAN_LLVM} CACHE FILEPATH "Indexes of these archives")
set(CMAKE_C_COMPILER_TARGET wasm32-wasi)
set(CMAKE_CXX_COMPILER_TARGET wasm32-wasi)
# Exceptions are WebAssembly's own; what they need at run time is classroom/src/exceptions.cpp.
set(CMAKE_CXX_FLAGS_INIT "-fwasm-exceptions -isystem ${CMAKE_CURRENT_LIST_DIR}/../classroom/wasi")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
