# The images of the kernels, embedded in the library: fat binaries with machine code for compute capabilities 8.0 and 9.0
# and PTX for later ones. nvcc is no language of the build (no header and no library of a toolkit is used besides it): where
# it is missing the library is complete but for them.
if(NOT TESSERA_CUDA_KERNELS STREQUAL "OFF")
  find_program(TESSERA_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
endif()
if(TESSERA_CUDA_KERNELS STREQUAL "ON" AND NOT TESSERA_NVCC)
  message(FATAL_ERROR "TESSERA_CUDA_KERNELS is ON and there is no nvcc: set TESSERA_NVCC to its path")
endif()

set(images "")
set(list "")
set(embedded "")
if(TESSERA_CUDA_KERNELS STREQUAL "OFF")
  message(STATUS "CUDA kernels: none, as TESSERA_CUDA_KERNELS is OFF; --device_type cuda runs on emulated devices only")
elseif(NOT TESSERA_NVCC)
  message(STATUS "CUDA kernels: none, as there is no nvcc; --device_type cuda runs on emulated devices only")
else()
  message(STATUS "CUDA kernels: compiled by ${TESSERA_NVCC}")
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/*.cuh ${CMAKE_CURRENT_SOURCE_DIR}/kernels/*.h)
  foreach(source IN LISTS TESSERA_CUDA_SOURCES)
    get_filename_component(name ${source} NAME_WE)
    set(image ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
    add_custom_command(OUTPUT ${image}
      COMMAND ${TESSERA_NVCC} -fatbin -std=c++20 -O3 -fmad=false -gencode arch=compute_80,code=sm_80
        -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_80,code=compute_80
        -I${CMAKE_SOURCE_DIR}/src -o ${image} ${CMAKE_CURRENT_SOURCE_DIR}/${source}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} ${headers} COMMENT "CUDA kernels of ${source}" VERBATIM)
    list(APPEND images ${image})
    string(APPEND embedded "    \"tessera_kernels_${name}:\\n\"\n    \".incbin \\\"${image}\\\"\\n\"\n    \".balign 64\\n\"\n")
    string(APPEND list "tessera_kernels_${name}, ")
    string(APPEND declared "extern \"C\" const std::byte tessera_kernels_${name}[];\n")
  endforeach()
endif()

set(text "#include \"backends/cuda/kernel_images.h\"\n\n")
if(images)
  string(APPEND text "#include <array>\n\n${declared}\n"
    "asm(\".pushsection .rodata\\n\"\n    \".balign 64\\n\"\n${embedded}    \".popsection\\n\");\n\n")
endif()
string(APPEND text "namespace tessera::cuda {\n\nstd::span<const std::byte* const> kernel_images() {\n")
if(images)
  string(APPEND text "  static constexpr std::array kImages{${list}};\n  return kImages;\n")
else()
  string(APPEND text "  return {};\n")
endif()
string(APPEND text "}\n\n}  // namespace tessera::cuda\n")
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/kernel_images.cpp CONTENT "${text}" @ONLY)
set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/kernel_images.cpp PROPERTIES OBJECT_DEPENDS "${images}")
