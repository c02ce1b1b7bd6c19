# What `cmake --install` puts where, in three parts (components) that can be installed alone:
#   command   the program, its manual pages and its completions of shells
#   library   the layers that a planner needs, their headers, and a CMake package that finds them:
#             find_package(meshplan) gives meshplan::planner and what it stands on
#   python    the Python package, where it is built
# No path is absolute, so an installed tree may be moved.

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME command)
set(meshplan_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/meshplan)

# Installs a layer, for package_layer's callers in another project. Its archive can become part of a
# shared library (a plugin, the Python package); functions are inlined as if it could not.
function(package_layer name)
  add_library(meshplan::${name} ALIAS ${name})
  set_target_properties(${name} PROPERTIES OUTPUT_NAME meshplan_${name}
                                           POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  # Headers lie in a folder of their own: core/error.hpp is no name for a whole system.
  target_include_directories(${name} INTERFACE
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/meshplan>)
  install(TARGETS ${name} EXPORT meshplan ARCHIVE COMPONENT library)
  install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/meshplan COMPONENT library
          FILES_MATCHING PATTERN *.hpp)
endfunction()

# Writes the CMake package of all packaged layers.
function(install_package)
  include(CMakePackageConfigHelpers)
  install(EXPORT meshplan NAMESPACE meshplan:: FILE meshplanTargets.cmake
          DESTINATION ${meshplan_package_folder} COMPONENT library)
  configure_package_config_file(cmake/meshplanConfig.cmake.in meshplanConfig.cmake
                                INSTALL_DESTINATION ${meshplan_package_folder})
  # Before 1.0 a minor version may change the interface.
  write_basic_package_version_file(meshplanConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/meshplanConfig.cmake
                ${CMAKE_CURRENT_BINARY_DIR}/meshplanConfigVersion.cmake
          DESTINATION ${meshplan_package_folder} COMPONENT library)
endfunction()
