# megalith_library(Name [DEPENDS Lib...]) -- static library from the *.cpp beside
# the caller's CMakeLists.txt. The allowed edges between libraries are checked by
# scripts/check_layering.py.
function(megalith_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(Megalith${name} STATIC ${sources})
  target_include_directories(Megalith${name} PUBLIC ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(Megalith${name} PRIVATE ${PROJECT_SOURCE_DIR}) # device/Abi.h and the like
  target_include_directories(Megalith${name} SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS})
  foreach(dep ${ARG_DEPENDS})
    target_link_libraries(Megalith${name} PUBLIC Megalith${dep})
  endforeach()
  target_link_libraries(Megalith${name} PUBLIC ${ARG_LINK})
endfunction()

# megalith_embed(target NAMESPACE FILE...) -- each file becomes a string constant
# `megalith::embedded::<stem>` in a generated source that is linked into target.
# `--table` in front of the files: see embed.py.
function(megalith_embed target)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/Embedded${target}.cpp)
  set(files ${ARGN})
  list(REMOVE_ITEM files --table)
  add_custom_command(OUTPUT ${out}
    COMMAND python3 ${PROJECT_SOURCE_DIR}/cmake/embed.py ${out} ${ARGN}
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/embed.py VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
