# cmake --install: the program, what completes it in shells, its manual page and its licence; cpack makes a package for
# Debian of these. The texts come from the program's own tables when it is installed.

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
  endforeach()")
install(FILES ${texts}/tessera DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
# zsh looks in the first one below /usr/local, on Debian in the second one below /usr.
foreach(folder site-functions vendor-completions)
  install(FILES ${texts}/_tessera DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${folder})
endforeach()
install(FILES ${texts}/tessera.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${texts}/tessera.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_CONTACT "the authors of tessera")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains large language models from one native program")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_STRIP_FILES ON)
include(CPack)
