# cmake -DOUTPUT=classroom.html -DMODULE=module.txt -DROOT=... "-DSCRIPTS=a.js;b.js" ... -P ClassroomPage.cmake
#
# Writes the classroom's page: scripts and styles, the lessons' texts, and the simulator's module as
# packed text (gzip, base64).
include(${CMAKE_CURRENT_LIST_DIR}/../cmake/PageParts.cmake)
put_together(page ${TEMPLATE} STYLES ${STYLES} SCRIPTS ${SCRIPTS})

# One JSON text of all: the lessons in their order, and each other file under its name.
set(lessons "")
foreach(file IN LISTS LESSONS)
  file(READ ${file} text)
  string(APPEND lessons "${text},")
endforeach()
string(REGEX REPLACE ",$" "" lessons "${lessons}")
set(material "{\"lessons\":[${lessons}]")
foreach(file IN LISTS DATA)
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND material ",\"${name}\":${text}")
endforeach()
string(APPEND material "}")
# Inside a script element nothing may end it.
string(REPLACE "<" "\\u003c" material "${material}")

read_all(worker ${WORKER})
read_all(module ${MODULE})
string(REPLACE "/*LESSONS*/" "${material}" page "${page}")
string(REPLACE "/*WORKER*/" "${worker}" page "${page}")
string(REPLACE "/*MODULE*/" "${module}" page "${page}")
file(WRITE ${OUTPUT} "${page}")
