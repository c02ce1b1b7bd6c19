# The target meshplan::onednn. Not by oneDNN's own CMake file: Debian's asks for OpenCL, which the
# CPU engine does not use and which no package of oneDNN's installs.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
if(NOT TARGET meshplan::onednn)
  add_library(meshplan::onednn INTERFACE IMPORTED GLOBAL)
  set_target_properties(meshplan::onednn PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR}
    INTERFACE_LINK_LIBRARIES ${DNNL_LIBRARY})
endif()
