// `tessera train --dataset own.txt` and nothing else.
#include "tests/apps/ranks_fixture.h"

namespace tessera {
namespace {

class FirstRun : public Ranks {
 protected:
  FirstRun() { write("own.txt", made_up_text(3000)); }

  static Words command(const Words& more) {
    return Words{"train", "--dataset",      "own.txt", "--max_steps",
                 "6",     "--threads",      "1",       "--peak_tflops_per_gpu",
                 "1",     "--metrics_file", "metrics"} +
           more;
  }
  // The options of the line that says what was chosen.
  static Words chosen(const ProgramResult& result) {
    const size_t begin = result.err.find("as if by --") + 9;
    const std::string said = result.err.substr(begin, result.err.find('\n', begin) - begin);
    Words words;
    for (std::string_view word : split(said, ' ')) words.emplace_back(word);
    return words;
  }
  ProgramResult run_well(const Words& words) {
    ProgramResult result = run(words);
    EXPECT_EQ(result.status, 0) << result.err;
    return result;
  }
  Words tokenizers() const {
    Words found;
    for (const std::string& name : names("cache"))
      if (name.starts_with("tokenizer-")) found.push_back(name);
    return found;
  }
};

TEST_F(FirstRun, SaysHowToDoWithoutAPlaceInThisDirectory) {
  write("cache", "no directory");
  const std::string wrong = run(command({})).message();
  expect_contains(wrong, "--cache_dir: cannot create directory 'cache': ");
  expect_contains(wrong, "; give a directory that can be written");
  const Words given{"--tokenizer", "byte", "--hidden_width", "32", "--num_heads", "2"};
  EXPECT_EQ(run(command(given)).message(), wrong);
}

TEST_F(FirstRun, AStepScheduleHasNoWarmUp) {
  const ProgramResult result = run_well(command({"--lr_decay_style", "step"}));
  expect_contains(result.err, " --lr 0.003 --weight_decay ");
}

TEST_F(FirstRun, ATextIsAllThatATrainingNeeds) {
  const ProgramResult first = run_well(command({"--checkpoint_dir", "ckpt"}));
  expect_contains(first.err, "made of ");
  const Words losses_of_first = losses("metrics");
  EXPECT_EQ(losses_of_first.size(), 6u);
  EXPECT_LT(std::stod(losses_of_first.back()), std::stod(losses_of_first.front()));
  ASSERT_EQ(tokenizers().size(), 1u);

  // The same again, by itself and by the options that were said.
  std::filesystem::remove(path("metrics"));
  const ProgramResult second = run_well(command({}));
  expect_contains(second.err, "made for this text before");
  EXPECT_EQ(losses("metrics"), losses_of_first);
  std::filesystem::remove(path("metrics"));
  run_well(command(chosen(first)));
  EXPECT_EQ(losses("metrics"), losses_of_first);
  EXPECT_EQ(tokenizers().size(), 1u);

  const ProgramResult plan = run_well({"plan", "--dataset", "own.txt", "--max_steps", "6"});
  EXPECT_EQ(chosen(plan), chosen(first));
  expect_contains(plan.out, "Model llama_v2: ");

  const ProgramResult text =
      run_well({"generate", "ckpt", "--prompt", "the quick", "--max_new_tokens", "4"});
  expect_contains(text.out, "the quick");
}

TEST_F(FirstRun, AResumedRunKeepsItsModelWhateverBecameOfTheText) {
  run_well(command({"--checkpoint_dir", "ckpt", "--lr", "0.002"}));
  write("own.txt", made_up_text(90'000));  // for which another model would be chosen
  const ProgramResult grown = run_well({"plan", "--dataset", "own.txt"});
  const ProgramResult resumed = run_well(command(
      {"--checkpoint_dir", "ckpt", "--resume_from_checkpoint", "ckpt", "--max_steps", "8"}));
  expect_contains(resumed.err, "that are not given are those of ckpt/llama_v2-6steps");
  expect_contains(resumed.err, "--lr 0.002");
  expect_contains(resumed.err, "Writing checkpoint to ckpt/llama_v2-8steps");
  EXPECT_EQ(resumed.err.find("as if by"), std::string::npos);
  EXPECT_EQ(tokenizers().size(), 1u);  // that of the checkpoint was taken
  auto width = [](const ProgramResult& result) {
    const size_t begin = result.err.find("--hidden_width ");
    return result.err.substr(begin, result.err.find(' ', begin + 15) - begin);
  };
  EXPECT_NE(width(grown), width(resumed));
  const ProgramResult plan =
      run_well({"plan", "--dataset", "own.txt", "--resume_from_checkpoint", "ckpt"});
  EXPECT_EQ(width(plan), width(resumed));
}

TEST_F(FirstRun, OfSeveralRanksOneMakesTheTokenizer) {
  run_well(command({}));
  const Words alone = losses("metrics");
  std::filesystem::remove(path("metrics"));
  std::filesystem::remove_all(path("cache"));
  const ProgramResult both = run_ranks(2, command({"--checkpoint_dir", "ckpt"}));
  expect_contains(both.err, "made of ");
  EXPECT_EQ(both.err.find("[rank 1]"), std::string::npos);
  expect_close(losses("metrics"), alone, 0.01);
  EXPECT_EQ(tokenizers().size(), 1u);
  const ProgramResult again = run_ranks(2, command({"--resume_from_checkpoint", "ckpt"}));
  expect_contains(again.err, "that are not given are those of ckpt");
}

TEST_F(FirstRun, ErrorsNameTheWayOut) {
  auto failure = [&](const Words& words) {
    const ProgramResult result = run(words);
    EXPECT_EQ(result.status, 1);
    return result.message();
  };
  expect_contains(failure({"train", "--dataset", "none.txt"}),
                  "--dataset: cannot read 'none.txt': there is no such file or directory");
  write("empty.txt", "");
  expect_contains(failure({"train", "--dataset", "empty.txt"}), "empty");
}

}  // namespace
}  // namespace tessera
