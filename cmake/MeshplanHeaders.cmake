# The libraries of headers that meshplan needs, for a machine that Debian has no packages for: this
# one's headers, in a folder of their own, since those beside them are of this machine's C library.
set(headers ${PROJECT_BINARY_DIR}/headers)
file(MAKE_DIRECTORY ${headers})

function(link_headers target folder)     # link_headers(fmt::fmt fmt)
  find_path(MESHPLAN_HEADERS_${folder} ${folder} PATHS /usr/include NO_CMAKE_FIND_ROOT_PATH REQUIRED)
  mark_as_advanced(MESHPLAN_HEADERS_${folder})
  file(CREATE_LINK ${MESHPLAN_HEADERS_${folder}}/${folder} ${headers}/${folder} SYMBOLIC)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} SYSTEM INTERFACE ${headers})
endfunction()
link_headers(nlohmann_json::nlohmann_json nlohmann)
link_headers(fmt::fmt fmt)
link_headers(CLI11::CLI11 CLI)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)

# Files of other stacks are not read there.
foreach(package pugixml yaml-cpp tomlplusplus)
  set(CMAKE_DISABLE_FIND_PACKAGE_${package} ON)
endforeach()
