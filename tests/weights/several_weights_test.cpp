// States that have the weights of a model more than once.
#include <gtest/gtest.h>

#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/weights/torch_state_fixture.h"

namespace tessera {
namespace {

class SeveralWeights : public testing::Test {
 protected:
  // The model's own, and what is twice as large.
  void write(const std::string& own, const std::vector<std::string>& others) const {
    TorchStateForm form;
    form.weights = own;
    write_torch_state(directory_.path(), model_, form, [&](TorchStateWriter& writer) {
      const std::vector<Parameter> parameters = parameters_of(model_);
      for (const std::string& other : others)
        for (size_t i = 0; i < parameters.size(); ++i)
          writer.tensor(other + parameters[i].name,
                        hugging_face_tensor(model_.model_type, parameters[i]).shape,
                        [&](int64_t e) { return 2 * state_value(i, "weight", e); });
    });
  }
  TorchTrainingState open() const { return {directory_.path(), model_, parameters_of(model_)}; }

  ScratchDirectory directory_;
  ModelConfig model_ = tiny_model(ModelType::kLlamaV2);
};

TEST_F(SeveralWeights, ThoseOfTheModelAreTaken) {
  for (const auto& [own, others] :
       {std::pair<std::string, std::vector<std::string>>{"model.", {"ema."}},
        {"", {"ema_model.module."}},
        {"state_dict.", {"average.", "state_dict_ema."}},
        {"app.model.", {"app.ema."}}}) {
    write(own, others);
    testing::internal::CaptureStderr();
    const TorchTrainingState state = open();
    expect_contains(testing::internal::GetCapturedStderr(), "sets of weights of this model");
    std::vector<float> values(5);
    state.read(state.parameters()[1].name, 3, values);
    EXPECT_EQ(values[0], state_value(1, "weight", 3)) << own;
  }
}

TEST_F(SeveralWeights, WhereNamesDoNotSayNoneIsTaken) {
  write("student.", {"teacher."});
  const std::string message = user_error([&] { open(); });
  expect_contains(message, "has 2 sets of weights of this model, which begin with 'student.model.");
  expect_contains(message, "'teacher.model.");
  write("model.", {"state_dict."});
  expect_contains(user_error([&] { open(); }), "which of them is meant is not known");
}

}  // namespace
}  // namespace tessera
