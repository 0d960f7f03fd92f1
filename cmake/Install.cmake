# cmake --install: the program, the library with its headers, and the pipelines. The device
# code is part of the library.
include(CMakePackageConfigHelpers)

# What megalith/Api.h, LiveSession.h and megalith.h need, and no more.
set(MEGALITH_PUBLIC_HEADERS Api.h Error.h Export.h HostLoop.h LiveSession.h Request.h RequestEnd.h megalith.h)
list(TRANSFORM MEGALITH_PUBLIC_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/megalith/)

install(TARGETS megalith RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS Megalith EXPORT MegalithTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_BINARY_DIR}/completion/megalith DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${PROJECT_BINARY_DIR}/completion/_megalith DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${PROJECT_BINARY_DIR}/completion/megalith.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${MEGALITH_PUBLIC_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/megalith)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/pipelines DESTINATION ${CMAKE_INSTALL_DATADIR}/megalith
        FILES_MATCHING PATTERN *.yaml PATTERN models EXCLUDE)
# Where program and library look for the model file of a checkpoint.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/pipelines/models DESTINATION ${CMAKE_INSTALL_DATADIR}/megalith
        FILES_MATCHING PATTERN *.yaml)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Megalith)
install(EXPORT MegalithTargets NAMESPACE Megalith:: DESTINATION ${package})
set(MEGALITH_PIPELINES_DIR ${CMAKE_INSTALL_DATADIR}/megalith/pipelines)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/MegalithConfig.cmake.in
  ${PROJECT_BINARY_DIR}/MegalithConfig.cmake INSTALL_DESTINATION ${package} PATH_VARS MEGALITH_PIPELINES_DIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/MegalithConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/MegalithConfig.cmake ${PROJECT_BINARY_DIR}/MegalithConfigVersion.cmake
        DESTINATION ${package})

# Paths relative to the file, so that an installed tree can be moved.
string(REGEX REPLACE "[^/]+" ".." MEGALITH_PC_UP "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
configure_file(${PROJECT_SOURCE_DIR}/cmake/megalith.pc.in ${PROJECT_BINARY_DIR}/megalith.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/megalith.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
