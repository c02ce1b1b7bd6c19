# cmake -DOUTPUT=x.cpp -DFUNCTION=page_template -DTEMPLATE=page.html "-DSTYLES=a.css"
#       "-DSCRIPTS=a.js;b.js" -P EmbedPage.cmake
#
# Puts style sheets and scripts into the template and writes a C++ source whose FUNCTION
# returns the result: a page that needs no other file. The scripts share one function's scope, in the order given.
function(read_all output)
  set(all "")
  foreach(file IN LISTS ARGN)
    file(READ ${file} text)
    string(APPEND all "${text}")
  endforeach()
  set(${output} "${all}" PARENT_SCOPE)
endfunction()

read_all(styles ${STYLES})
read_all(scripts ${SCRIPTS})
file(READ ${TEMPLATE} page)
string(REPLACE "/*STYLES*/" "${styles}" page "${page}")
string(REPLACE "/*SCRIPTS*/" "${scripts}" page "${page}")
# A literal holds at most 64 KiB in some compilers; neighbours are one.
string(LENGTH "${page}" length)
set(literals "")
set(begin 0)
while(begin LESS length)
  string(SUBSTRING "${page}" ${begin} 16000 piece)
  string(APPEND literals "    R\"page(${piece})page\"\n")
  math(EXPR begin "${begin} + 16000")
endwhile()
file(WRITE ${OUTPUT} "#include \"html/template.hpp\"

namespace meshplan::reports {

std::string_view ${FUNCTION}() {
  return
${literals}      ;
}

}  // namespace meshplan::reports
")
