// The file stream that CLI11 has for a configuration file. None is ever opened, and libc++'s archive
// for WebAssembly has none: classroom/wasi/__config.
#include <fstream>

template class std::basic_filebuf<char>;
template class std::basic_ifstream<char>;
