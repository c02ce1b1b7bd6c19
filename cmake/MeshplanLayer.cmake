# A layer is one folder, one static library and one namespace. Only its include/ is public, so an
# include that the link lines below do not allow does not compile. A layer that is PACKAGED is
# installed, and other projects link it as meshplan::NAME (cmake/MeshplanPackage.cmake).
include(MeshplanBatches)

add_library(meshplan_options INTERFACE)
# Designated initializers leave the rest to the members' defaults on purpose.
set(meshplan_warnings -Wall -Wextra -Wshadow -Wconversion -Wundef -Wno-missing-field-initializers)
# -Wconversion and -Wshadow would also judge what nvcc generates.
set(meshplan_cuda_warnings -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers)
if(MESHPLAN_BATCH_SIZE GREATER 1 AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # the file that includes the others is no header
  list(APPEND meshplan_warnings -Wno-subobject-linkage)
endif()
if(MESHPLAN_WERROR)
  list(APPEND meshplan_warnings -Werror)
  list(APPEND meshplan_cuda_warnings -Werror=all-warnings)
endif()
target_compile_options(meshplan_options INTERFACE
                       "$<$<COMPILE_LANGUAGE:CXX>:${meshplan_warnings}>"
                       "$<$<COMPILE_LANGUAGE:CUDA>:${meshplan_cuda_warnings}>")
# Checks of UndefinedBehaviorSanitizer that a folder is compiled without: sanitizer builds take time.
define_property(TARGET PROPERTY MESHPLAN_UNDEFINED_LEFT_OUT INHERITED
                BRIEF_DOCS "checks left out" FULL_DOCS "Arguments of -fno-sanitize, with commas.")
if(MESHPLAN_SANITIZE)
  if(MESHPLAN_SANITIZE STREQUAL "THREAD")
    set(meshplan_sanitizers thread)
    # Fences order what processes share (status_board.cpp), where this sanitizer sees nothing anyway.
    target_compile_options(meshplan_options INTERFACE -Wno-tsan)
  else()
    set(meshplan_sanitizers address)
    set(meshplan_left_out $<TARGET_PROPERTY:MESHPLAN_UNDEFINED_LEFT_OUT>)
    # What a null pointer or a place beyond an object leads to, AddressSanitizer reports where it is
    # used; to check every pointer before that costs a sixth of the build.
    target_compile_options(meshplan_options INTERFACE -fsanitize=undefined
                           -fno-sanitize=null,object-size
                           $<$<BOOL:${meshplan_left_out}>:-fno-sanitize=${meshplan_left_out}>)
    target_link_options(meshplan_options INTERFACE -fsanitize=undefined)
  endif()
  # The instrumentation makes GCC's flow analysis see uninitialised reads where there are none (its
  # manual says so under -fsanitize); the other build types keep that warning.
  target_compile_options(meshplan_options INTERFACE -fsanitize=${meshplan_sanitizers}
                         -fno-sanitize-recover=all -fno-omit-frame-pointer
                         -Wno-maybe-uninitialized)
  target_link_options(meshplan_options INTERFACE -fsanitize=${meshplan_sanitizers})
endif()

function(add_layer name)               # add_layer(sim PACKAGED DEPS program PRIVATE_DEPS fmt::fmt)
  cmake_parse_arguments(arg "PACKAGED" "" "DEPS;PRIVATE_DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS src/*.cpp src/*/*.cpp src/*/*/*.cpp)  # rooms are folders of src
  if(MESHPLAN_ROOMS_LEFT_OUT)
    list(FILTER sources EXCLUDE REGEX "/${name}/src/(${MESHPLAN_ROOMS_LEFT_OUT})/")
  endif()
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
                                     PRIVATE src)
  target_link_libraries(${name} PUBLIC ${arg_DEPS} PRIVATE $<BUILD_INTERFACE:meshplan_options>
                                                           ${arg_PRIVATE_DEPS})
  compile_in_batches(${name})
  if(arg_PACKAGED AND NOT MESHPLAN_CLASSROOM)
    package_layer(${name})
  endif()
endfunction()

# Turns files into one C++ source that defines `std::span<const EmbeddedFile> NAME_presets()`,
# so that libraries need no file system at run time (they are also compiled for the browser).
function(embed_presets target name)    # embed_presets(models model [NAMESPACE models] FILES ${files})
  cmake_parse_arguments(arg "" "NAMESPACE" "FILES" ${ARGN})
  if(NOT arg_NAMESPACE)
    set(arg_NAMESPACE ${target})
  endif()
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${name}_presets.cpp)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DNAMESPACE=${arg_NAMESPACE} -DNAME=${name}
            "-DFILES=${arg_FILES}" -P ${PROJECT_SOURCE_DIR}/cmake/EmbedPresets.cmake
    DEPENDS ${arg_FILES} ${PROJECT_SOURCE_DIR}/cmake/EmbedPresets.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
