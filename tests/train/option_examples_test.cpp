#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "tests/train/option_testing.h"
#include "train/model_options.h"

namespace tessera {
namespace {

using namespace option_testing;

// The words with which an example calls the program: the shell runs the file with a program that
// prints its arguments.
std::vector<std::string> words_of(const std::filesystem::path& example, const std::string& extra) {
  auto printer = std::filesystem::path(testing::TempDir()) / "tessera_print_arguments";
  write_file_atomic(printer, "#!/bin/sh\nprintf '%s\\n' \"$@\"\n");
  EXPECT_EQ(::chmod(printer.c_str(), 0755), 0);
  std::string command = cat("TESSERA='", printer.string(), "' sh '", example.string(), "' ", extra);
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  std::vector<std::string> words;
  for (std::string_view line : split(output, '\n')) words.emplace_back(line);
  words.pop_back();  // behind the last line end
  return words;
}

std::vector<std::filesystem::path> examples() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(TESSERA_SOURCE_DIR) + "/examples")) {
    if (entry.path().extension() == ".sh") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Examples, EveryArgumentListPassesPlan) {
  const std::map<std::string, int64_t> parameters{{"gpt2_cuda.sh", 124439808},
                                                  {"llama2_13b_slurm.sh", 13204608000},
                                                  {"llama2_70b_model_parallel.sh", 69278638080},
                                                  {"llama2_70b_slurm.sh", 69278638080},
                                                  {"llama2_7b_kubernetes.sh", 6889410560},
                                                  {"llama2_7b_profiling.sh", 6738415616},
                                                  {"llama2_7b_slurm.sh", 6889410560},
                                                  {"llama3_1_8b_slurm.sh", 7392727040},
                                                  {"mixtral_8x7b_slurm.sh", 46702792704}};
  EXPECT_EQ(examples().size(), parameters.size());
  for (const auto& example : examples()) {
    SCOPED_TRACE(example.string());
    std::vector<std::string> words = words_of(example, "");
    ASSERT_FALSE(words.empty());
    EXPECT_EQ(words[0], "plan");
    ParsedOptions parsed = parse({words.begin() + 1, words.end()});
    ASSERT_TRUE(parameters.contains(example.filename().string()));
    EXPECT_EQ(parameter_count(resolve_model(parsed)), parameters.at(example.filename().string()));
    EXPECT_NE(std::filesystem::status(example).permissions() & std::filesystem::perms::owner_exec,
              std::filesystem::perms::none);
  }
}

TEST(Examples, OptionsBehindTheListWin) {
  auto example = std::filesystem::path(TESSERA_SOURCE_DIR) / "examples/llama2_7b_slurm.sh";
  std::vector<std::string> words = words_of(example, "train --train_batch_size=7");
  EXPECT_EQ(words[0], "train");
  EXPECT_EQ(parse({words.begin() + 1, words.end()}).config.train_batch_size, 7);
}

}  // namespace
}  // namespace tessera
