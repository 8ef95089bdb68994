# Texts that the program carries, each as a constant: what a tuner chose, and what nvcc makes of the kernels.
function(tessera_carry_text file constant)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  file(READ ${file} text)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${file}.cpp @ONLY CONTENT
    "#include <string_view>\n\nnamespace tessera::cuda {\nextern const std::string_view @constant@;\nconst std::string_view @constant@ = R\"text(@text@)text\";\n}  // namespace tessera::cuda\n")
endfunction()
tessera_carry_text(product_choices.txt kCarriedChoices)
tessera_carry_text(kernel_facts.txt kCarriedKernelFacts)
