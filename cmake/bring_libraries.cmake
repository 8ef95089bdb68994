# Run by cpack on what it is about to pack. A tarball gets all libraries of the program, the C library and its dynamic
# loader included, so that it does not matter which ones a machine has:
#
#   bin/tessera                      a script that starts the loader beside it with the program beside it
#   lib/tessera/                     program, loader, libraries
#   share/doc/tessera/licences/      of all these
#
# The C library of the machine cannot be used: g++ 12 and the libraries of Debian 12 need its version 2.34 and later.
if(NOT CPACK_GENERATOR STREQUAL "TGZ")
  return()
endif()
set(tree ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
set(place ${tree}/lib/tessera)
file(MAKE_DIRECTORY ${place})
file(RENAME ${tree}/bin/tessera ${place}/tessera)

# Opened by name, by way of the loader's list: libcurl when something is fetched, libmicrohttpd for --http_port and --dashboard. Not librsvg,
# which draws PNG images: it takes fonts and some forty libraries.
execute_process(COMMAND /sbin/ldconfig -p OUTPUT_VARIABLE list COMMAND_ERROR_IS_FATAL ANY)
set(opened "")
foreach(name libcurl.so.4 libmicrohttpd.so.12)
  string(REPLACE "." "\\." pattern ${name})
  string(REGEX MATCH "${pattern} \\(libc6,(x86-64|AArch64)\\) => ([^\n]+)" found "${list}")
  if(NOT found)
    message(FATAL_ERROR "${name} is missing: tools/packages install build")
  endif()
  list(APPEND opened ${CMAKE_MATCH_2})
endforeach()
execute_process(COMMAND ldd ${place}/tessera ${opened} OUTPUT_VARIABLE needed COMMAND_ERROR_IS_FATAL ANY)
if(needed MATCHES "not found")
  message(FATAL_ERROR "libraries are missing:\n${needed}")
endif()
string(REGEX MATCHALL "/[^ \n]*\\.so[^ \n]*" libraries "${needed}")
list(APPEND libraries ${opened})
list(REMOVE_DUPLICATES libraries)
foreach(library IN LISTS libraries)
  string(REGEX REPLACE ":$" "" library "${library}")
  cmake_path(GET library FILENAME name)
  if(EXISTS ${place}/${name})
    continue()
  endif()
  file(COPY_FILE ${library} ${place}/${name})  # follows links: under the name that is looked for
  file(REAL_PATH ${library} real)
  # Packages name their files with or without /usr.
  string(REGEX REPLACE "^/usr" "" bare ${real})
  set(licence "")
  foreach(path ${real} ${bare} /usr${bare})
    execute_process(COMMAND dpkg-query -S ${path} OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed AND owner MATCHES "^([a-z0-9+.-]+)")
      set(licence /usr/share/doc/${CMAKE_MATCH_1}/copyright)
      file(REAL_PATH ${licence} licence)
      file(COPY_FILE ${licence} ${tree}/share/doc/tessera/licences/${CMAKE_MATCH_1})
      break()
    endif()
  endforeach()
  if(NOT licence)
    message(FATAL_ERROR "the licence of ${real} is not to be found: it belongs to no package")
  endif()
endforeach()

file(GLOB loader ${place}/ld-linux-*.so.*)
cmake_path(GET loader FILENAME name)
file(WRITE ${tree}/bin/tessera [[#!/bin/sh
# Starts tessera with the libraries that came with it.
top=$(dirname "$(dirname "$(readlink -f "$0")")")
exec "$top/lib/tessera/]] ${name} [[" --argv0 "$top/bin/tessera" --library-path "$top/lib/tessera" \
  "$top/lib/tessera/tessera" "$@"
]])
file(CHMOD ${tree}/bin/tessera ${loader} PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
