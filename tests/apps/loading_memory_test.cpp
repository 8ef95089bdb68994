// What ranks have in memory while they load what another mesh has saved.
#include <regex>

#include "tests/apps/ranks_fixture.h"

namespace tessera {
namespace {

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// "12.5 MiB" behind `before` in the text.
double mebibytes(const std::string& text, const std::string& before) {
  std::smatch found;
  if (!std::regex_search(text, found, std::regex(before + R"(([\d.]+) (KiB|MiB|GiB))"))) {
    ADD_FAILURE() << "no '" << before << "' in " << text;
    return 0;
  }
  const std::string unit = found[2];
  return std::stod(found[1]) * (unit == "GiB" ? 1024 : unit == "KiB" ? 1.0 / 1024 : 1);
}

TEST_F(Ranks, HoldTheirOwnPartAndLittleElseWhileTheyLoad) {
  const Words model{
      "--vocab_size", "30000", "--hidden_width",     "512", "--checkpoint_dir",       "ckpt",
      "--max_steps",  "1",     "--async_checkpoint", "off", "--num_kept_checkpoints", "1"};
  run_ranks(3, job(1, model));
  // The run is at its end: of what is planned the state alone is touched.
  for (const auto& [ranks, mesh] :
       {std::pair<int, Words>{1, {}},
        {2, {}},
        {3, {}},
        {4, {"--sharding_strategy", "hybrid_shard", "--shard_degree", "2"}},
        {2, {"--tensor_parallel_degree", "2"}}}) {
    SCOPED_TRACE(cat(ranks, " ranks ", join(mesh, " ")));
    const std::string log =
        run_ranks(ranks, job(1, model + Words{"--resume_from_checkpoint", "ckpt"} + mesh)).err;
    const double state = mebibytes(log, R"(\(parameters )") + mebibytes(log, "moments ");
    EXPECT_GT(state, 60);
    EXPECT_LT(mebibytes(log, "Peak resident memory of the process: "), state + 64) << log;
  }
}
#else
TEST_F(Ranks, HoldTheirOwnPartAndLittleElseWhileTheyLoad) {
  GTEST_SKIP() << "sanitizers have memory of their own";
}
#endif

}  // namespace
}  // namespace tessera
