# Pages that need no other file are put together of a template, style sheets and scripts. The scripts
# share one function's scope, in the order given.

function(read_all output)                # read_all(text a.js b.js)
  set(all "")
  foreach(file IN LISTS ARGN)
    file(READ ${file} text)
    string(APPEND all "${text}")
  endforeach()
  set(${output} "${all}" PARENT_SCOPE)
endfunction()

function(put_together output template)   # put_together(page page.html STYLES a.css SCRIPTS a.js b.js)
  cmake_parse_arguments(arg "" "" "STYLES;SCRIPTS" ${ARGN})
  read_all(styles ${arg_STYLES})
  read_all(scripts ${arg_SCRIPTS})
  file(READ ${template} page)
  string(REPLACE "/*STYLES*/" "${styles}" page "${page}")
  string(REPLACE "/*SCRIPTS*/" "${scripts}" page "${page}")
  set(${output} "${page}" PARENT_SCOPE)
endfunction()
