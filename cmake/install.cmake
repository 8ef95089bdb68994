# cmake --install: the program, what completes it in shells, its manual page, examples and licences. cpack makes of these a
# package for Debian (-G DEB) and a tarball that runs where it is unpacked (-G TGZ). The texts come from the program's own
# tables when it is installed.

include(GNUInstallDirs)
set(texts ${CMAKE_BINARY_DIR}/installed_texts)

install(TARGETS tessera RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(CODE "
  file(MAKE_DIRECTORY \"${texts}\")
  foreach(text \"completion;bash;tessera\" \"completion;zsh;_tessera\" \"completion;fish;tessera.fish\" \"manual;tessera.1\")
    list(POP_BACK text file)
    execute_process(COMMAND \"$<TARGET_FILE:tessera>\" \${text} OUTPUT_FILE \"${texts}/\${file}\" RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR \"tessera \${text} failed: \${failed}\")
    endif()
  endforeach()
  file(MAKE_DIRECTORY \"${texts}/link\")
  file(CREATE_LINK ../site-functions/_tessera \"${texts}/link/_tessera\" SYMBOLIC)")
install(FILES ${texts}/tessera DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
# zsh looks in the first one below /usr/local, on Debian in the second one below /usr.
install(FILES ${texts}/_tessera DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${texts}/link/_tessera DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${texts}/tessera.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${texts}/tessera.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} USE_SOURCE_PERMISSIONS)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
# Of what is compiled into the program, from Debian's packages.
foreach(package libbrotli-dev libexpat1-dev liblz4-dev liblzma-dev libsnappy-dev libssl-dev libtomlplusplus-dev
        libxxhash-dev libyaml-dev libzstd-dev nlohmann-json3-dev)
  install(FILES /usr/share/doc/${package}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR}/licences RENAME ${package} OPTIONAL)
endforeach()

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_CONTACT "the authors of tessera")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains large language models from one native program")
set(CPACK_PACKAGE_FILE_NAME tessera-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR}-linux)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ca-certificates, libcurl4, libmicrohttpd12")  # opened when they are needed
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "librsvg2-2")  # likewise, for PNG images of tessera plot
set(CPACK_STRIP_FILES ON)
# The tarball's tree is turned into one that brings its libraries.
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/cmake/package_settings.cmake)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/bring_libraries.cmake)
include(CPack)
