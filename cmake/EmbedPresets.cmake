# cmake -DOUTPUT=x.cpp -DNAMESPACE=models -DNAME=model "-DFILES=a.json;b.json" -P EmbedPresets.cmake
set(entries "")
foreach(file IN LISTS FILES)
  get_filename_component(stem ${file} NAME_WLE)
  file(READ ${file} text)
  string(APPEND entries "    {\"${stem}\", R\"json(${text})json\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include <array>

#include \"core/embedded_file.hpp\"

namespace meshplan::${NAMESPACE} {

std::span<const EmbeddedFile> ${NAME}_presets();

std::span<const EmbeddedFile> ${NAME}_presets() {
  static constexpr auto kFiles = std::to_array<EmbeddedFile>({
${entries}});
  return kFiles;
}

}  // namespace meshplan::${NAMESPACE}
")
