# cmake -DOUTPUT=x.cpp -DFUNCTION=page_template -DTEMPLATE=page.html "-DSTYLES=a.css"
#       "-DSCRIPTS=a.js;b.js" -P EmbedPage.cmake
#
# Writes a C++ source whose FUNCTION returns a page put together.
include(${CMAKE_CURRENT_LIST_DIR}/PageParts.cmake)
put_together(page ${TEMPLATE} STYLES ${STYLES} SCRIPTS ${SCRIPTS})
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
