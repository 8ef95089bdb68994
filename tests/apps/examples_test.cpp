// Every file of examples/ as it stands there, run by sh with the real program.
#include <gtest/gtest.h>

#include <map>

#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

const std::filesystem::path kExamples = std::string(TESSERA_SOURCE_DIR) + "/examples";

struct Expected {
  int64_t parameters;
  bool built = true;  // there is a graph of this family, so memory and arithmetic are known
};

const std::map<std::string, Expected> kExpected{{"gpt2_cuda.sh", {124439808}},
                                                {"llama2_13b_slurm.sh", {13204608000}},
                                                {"llama2_70b_model_parallel.sh", {69278638080}},
                                                {"llama2_70b_slurm.sh", {69278638080}},
                                                {"llama2_7b_kubernetes.sh", {6889410560}},
                                                {"llama2_7b_profiling.sh", {6738415616}},
                                                {"llama2_7b_slurm.sh", {6889410560}},
                                                {"llama3_1_8b_slurm.sh", {7392727040}},
                                                {"mixtral_8x7b_slurm.sh", {46702792704, false}}};

class Examples : public ProgramTest {
 protected:
  ProgramResult run_example(const std::string& name, const std::string& command) {
    return run({}, [&] {
      ::setenv("TESSERA", TESSERA_PROGRAM, 1);
      ::execlp("sh", "sh", (kExamples / name).c_str(), command.c_str(), nullptr);
      ::_exit(127);
    });
  }
};

TEST_F(Examples, AllAreListedHereAndCanBeStarted) {
  std::set<std::string> found, expected;
  for (const auto& entry : std::filesystem::directory_iterator(kExamples)) {
    if (entry.path().extension() != ".sh") continue;
    found.insert(entry.path().filename().string());
    EXPECT_NE(entry.status().permissions() & std::filesystem::perms::owner_exec,
              std::filesystem::perms::none)
        << entry.path();
  }
  for (const auto& [name, what] : kExpected) expected.insert(name);
  EXPECT_EQ(found, expected);
}

TEST_F(Examples, PassPlan) {
  for (const auto& [name, expected] : kExpected) {
    SCOPED_TRACE(name);
    ProgramResult result = run_example(name, "plan");
    EXPECT_EQ(result.status, 0) << result.err;
    expect_contains(result.out, cat(": ", expected.parameters, " parameters ("));
    EXPECT_EQ(result.out.find("FLOP a step") != std::string::npos, expected.built) << result.out;
    EXPECT_EQ(result.out.find("this family is not built yet") == std::string::npos, expected.built)
        << result.out;
  }
}

TEST_F(Examples, TrainSaysWhatIsNotBuilt) {
  const std::map<std::string, std::string> reasons{
      {"mixtral_8x7b_slurm.sh", "--model_type=mixtral"}};
  for (const auto& [name, option] : reasons) {
    SCOPED_TRACE(name);
    ProgramResult result = run_example(name, "train");
    EXPECT_EQ(result.status, 1) << result.err;
    EXPECT_EQ(result.message().find("tessera: not built yet: "), 0u) << result.err;
    expect_contains(result.message(), option);
    expect_contains(result.message(), "(tessera plan accepts");
    EXPECT_EQ(result.out, "");
  }
}

// The arguments of the C4 scripts mean what they say: the tokenizer is asked of the hub.
TEST_F(Examples, NamesOnTheHubAreLookedForThere) {
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  ::setenv("HF_HOME", path("home").c_str(), 1);
  ProgramResult result = run_example("llama2_7b_slurm.sh", "train");
  ::unsetenv("HF_HUB_OFFLINE");
  ::unsetenv("HF_HOME");
  EXPECT_EQ(result.status, 1) << result.err;
  expect_contains(result.message(), "--tokenizer hf-internal-testing/llama-tokenizer");
  expect_contains(result.message(), "HF_HUB_OFFLINE");
}

// The commands that a README shows, each as words; one that is cut short ("...") is none.
std::vector<Words> commands_of(const std::filesystem::path& readme, std::string_view beginning) {
  std::vector<Words> commands;
  const std::string text = read_file(readme);
  for (std::string_view line : split(text, '\n')) {
    if (!line.starts_with(cat("    ", beginning)) || line.find("...") != std::string_view::npos)
      continue;
    Words words;
    for (std::string_view word : split(line.substr(0, line.find(" # ")), ' ')) {
      if (!word.empty()) words.emplace_back(word);
    }
    commands.push_back(std::move(words));
  }
  return commands;
}

TEST_F(Examples, CommandsOfTheirReadmeParse) {
  auto commands = commands_of(kExamples / "README.md", "examples/");
  ASSERT_GE(commands.size(), 3u);
  for (Words words : commands) {
    SCOPED_TRACE(join(words, " "));
    std::string script = std::string(TESSERA_SOURCE_DIR) + "/" + words[0];
    if (words.size() == 1) words.push_back("plan");
    words.push_back("--print_config");
    ProgramResult result = run({}, [&] {
      std::vector<const char*> arguments{"sh", script.c_str()};
      for (size_t i = 1; i < words.size(); ++i) arguments.push_back(words[i].c_str());
      arguments.push_back(nullptr);
      ::setenv("TESSERA", TESSERA_PROGRAM, 1);
      ::execvp("sh", const_cast<char* const*>(arguments.data()));
      ::_exit(127);
    });
    EXPECT_EQ(result.status, 0) << result.err;
  }
}

TEST_F(Examples, CommandsOfTheReadmeParse) {
  auto commands = commands_of(std::string(TESSERA_SOURCE_DIR) + "/README.md", "tessera ");
  ASSERT_GE(commands.size(), 1u);
  write("own.txt", [] {
    std::string text;
    for (int i = 0; i < 400; ++i) text += cat("Line ", i, " of a text of one's own.\n");
    return text;
  }());
  for (Words words : commands) {
    SCOPED_TRACE(join(words, " "));
    // In a directory with the text that they name, as a shell would give them.
    ProgramResult result = run({}, [&] {
      if (::chdir(path("").c_str()) != 0) ::_exit(126);
      words[0] = TESSERA_PROGRAM;
      std::vector<const char*> arguments{"sh", "-c"};
      const std::string line = join(words, " ");
      arguments.push_back(line.c_str());
      arguments.push_back(nullptr);
      ::execvp("sh", const_cast<char* const*>(arguments.data()));
      ::_exit(127);
    });
    EXPECT_EQ(result.status, 0) << result.err;
  }
}

}  // namespace
}  // namespace tessera
