# `cpack -G DEB` makes a package for Debian and Ubuntu of each part of MeshplanPackage.cmake. What a
# program or extension module links becomes its dependencies (dpkg-shlibdeps).

set(MESHPLAN_PACKAGER "whoever built it <root@localhost>" CACHE STRING
    "Maintainer of Debian packages, as 'name <address>'")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME meshplan)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL command library)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${MESHPLAN_PACKAGER})
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
# Folders have the modes that Debian asks for, whatever the umask of who packs.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
    GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(meshplan_about " Divides a model over GPUs, and predicts time and memory of a step.")

# What Debian calls a changelog: that this version was packed, and where the changes stand.
execute_process(COMMAND date --utc --rfc-email --date ${MESHPLAN_DATE} OUTPUT_VARIABLE date
                OUTPUT_STRIP_TRAILING_WHITESPACE)
set(meshplan_changelog ${CMAKE_CURRENT_BINARY_DIR}/changelog.Debian)
file(WRITE ${meshplan_changelog} "meshplan (${PROJECT_VERSION}-1) unstable; urgency=medium

  * Version ${PROJECT_VERSION}; CHANGELOG.md of the sources says what is new.

 -- ${MESHPLAN_PACKAGER}  ${date}
")
execute_process(COMMAND gzip -9nf ${meshplan_changelog})

function(debian_package part name section description)
  string(TOUPPER ${part} PART)
  set(CPACK_DEBIAN_${PART}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${PART}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_COMPONENT_${PART}_DESCRIPTION "${description}\n${meshplan_about}" PARENT_SCOPE)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/copyright ${meshplan_changelog}.gz COMPONENT ${part}
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} OPTIONAL)
endfunction()

debian_package(command meshplan science "planner and simulator of parallel training")
set(CPACK_DEBIAN_COMMAND_PACKAGE_SHLIBDEPS ON)
if(TARGET runtime)
  set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS mpich)  # mpiexec, which starts the ranks of a run
endif()

debian_package(library libmeshplan-dev libdevel "planner of parallel training, library for C++")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "nlohmann-json3-dev (>= 3.11), libfmt-dev (>= 9)")
if(MESHPLAN_PUGIXML)
  string(APPEND CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS ", libpugixml-dev")
endif()
if(MESHPLAN_YAML)
  string(APPEND CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS ", libyaml-cpp-dev")
endif()
if(MESHPLAN_TOML)
  string(APPEND CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS ", libtomlplusplus-dev")
endif()

if(MESHPLAN_PYTHON_ENABLED)
  list(APPEND CPACK_COMPONENTS_ALL python)
  debian_package(python python3-meshplan python "planner of parallel training, package for Python")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS ON)
  # The module is of one minor version of Python.
  math(EXPR next "${Python_VERSION_MINOR} + 1")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS
      "python3 (>= ${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}), python3 (<< ${Python_VERSION_MAJOR}.${next})")
endif()

include(CPack)
