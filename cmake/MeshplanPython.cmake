# Decides whether the Python package is built: MESHPLAN_PYTHON = AUTO (where pybind11 and Python's
# headers are found), ON (an error otherwise) or OFF. Sets MESHPLAN_PYTHON_ENABLED. The system's
# interpreter is taken, for which Debian's pybind11-dev and the package are; another one with
# -DPython_EXECUTABLE=...

set(MESHPLAN_PYTHON AUTO CACHE STRING "Build the Python package: AUTO, ON or OFF")
set_property(CACHE MESHPLAN_PYTHON PROPERTY STRINGS AUTO ON OFF)
set(MESHPLAN_PYTHON_ENABLED OFF)
set(meshplan_python_missing "")

if(MESHPLAN_PYTHON STREQUAL "AUTO" AND MESHPLAN_SANITIZE)
  set(meshplan_python_missing "sanitizers are on, and the interpreter is built without")
elseif(MESHPLAN_PYTHON)
  if(NOT DEFINED Python_EXECUTABLE AND EXISTS /usr/bin/python3)
    set(Python_EXECUTABLE /usr/bin/python3)
  endif()
  find_package(Python 3.9 QUIET COMPONENTS Interpreter Development.Module)
  find_package(pybind11 2.9 QUIET)
  if(NOT Python_Development.Module_FOUND)
    set(meshplan_python_missing "no headers of Python 3.9 or later; apt-get install python3-dev")
  elseif(NOT pybind11_FOUND)
    set(meshplan_python_missing "no pybind11 2.9 or later; apt-get install pybind11-dev")
  else()
    set(MESHPLAN_PYTHON_ENABLED ON)
  endif()
  if(NOT MESHPLAN_PYTHON_ENABLED AND NOT MESHPLAN_PYTHON STREQUAL "AUTO")
    message(FATAL_ERROR "MESHPLAN_PYTHON=${MESHPLAN_PYTHON}, but: ${meshplan_python_missing}")
  endif()
else()
  set(meshplan_python_missing "MESHPLAN_PYTHON=${MESHPLAN_PYTHON}")
endif()

if(MESHPLAN_PYTHON_ENABLED)
  message(STATUS "Python package: on (Python ${Python_VERSION}, pybind11 ${pybind11_VERSION})")
else()
  message(STATUS "Python package: off (${meshplan_python_missing})")
endif()
