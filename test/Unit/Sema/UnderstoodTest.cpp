// Checkpoints of other families, and of many tools, by the shipped model files: each runs
// right, or is refused with the keys that the graph does not understand.
#include "megalith/Sema/Model.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/StringRef.h"
#include <gtest/gtest.h>

using namespace megalith;
using nlohmann::json;

namespace {

/// What the tools said of a config.json.
struct Said {
  bool right = false;
  std::vector<std::string> keys; ///< of `config-unknown` and `config-requires`, in order
  std::string all;
};

Said check(const std::string &modelFile, const std::string &config, std::vector<std::string> accept = {}) {
  SourceFiles files;
  Diagnostics diags(files);
  Said said;
  std::string reason;
  auto file = files.open(MEGALITH_SOURCE_DIR "/pipelines/models/" + modelFile, reason);
  auto parsed = file ? ast::parseModel(diags, *file) : std::nullopt;
  Result<ConfigFile> read = ConfigFile::parse(config, "", "T/config.json");
  if (!read)
    said.all = read.error.message + " [" + read.error.kind + "]\n";
  Acceptance acceptance(std::move(accept));
  if (parsed && read)
    said.right = checkModel(*parsed, *read, acceptance, diags).has_value();
  EXPECT_EQ(said.right, !diags.hasErrors() && parsed && read);
  said.all += diags.render();
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(said.all).split(lines, '\n');
  bool byModelFile = false; // the quantised are refused whatever that says
  for (llvm::StringRef line : lines) {
    llvm::StringRef rest = line;
    if (line.ends_with("[config-unknown]"))
      rest = line.split("understands `").second;
    else if (line.ends_with("[config-requires]"))
      rest = line.split("error: ").second.split('`').second;
    else if (line.ends_with("[quantised-checkpoint]"))
      rest = line.split("error: ").second.split('`').second;
    else
      continue;
    byModelFile |= !line.ends_with("[quantised-checkpoint]");
    said.keys.push_back(rest.split('`').first.str());
    EXPECT_TRUE(line.contains("T/config.json:")) << line.str();
  }
  EXPECT_TRUE(!byModelFile || said.all.find("pipelines/models/" + modelFile + ":") != said.all.npos) << said.all;
  EXPECT_TRUE(said.keys.empty() || said.all.find("--accept") != said.all.npos) << said.all;
  return said;
}

json llama() {
  return json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128,
    "vocab_size": 300, "hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "rope_scaling": null, "max_position_embeddings": 2048, "tie_word_embeddings": false,
    "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16", "use_cache": true, "pretraining_tp": 1})");
}
json qwen3() {
  json config = llama();
  config.update(json::parse(R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "sliding_window": null,
    "use_sliding_window": false, "max_window_layers": 28})"));
  config.erase("mlp_bias");
  config.erase("pretraining_tp");
  return config;
}

/// Members that are added to a good config.json, or replace its own. `keys`: what is refused;
/// empty: it runs.
struct Change {
  const char *members;
  std::vector<std::string> keys;
};

void checkChanges(const std::string &modelFile, const json &good, const std::vector<Change> &changes) {
  for (const Change &change : changes) {
    json config = good;
    config.update(json::parse(change.members));
    Said said = check(modelFile, config.dump(1));
    EXPECT_EQ(said.keys, change.keys) << change.members << "\n" << said.all;
    EXPECT_EQ(said.right, change.keys.empty()) << change.members << "\n" << said.all;
    // What is refused can be taken on the user's word, and nothing else is after it.
    EXPECT_TRUE(check(modelFile, config.dump(1), change.keys).right) << change.members;
  }
}

TEST(Understood, KeysOfLlama) {
  checkChanges(
      "llama.yaml", llama(),
      {{"{}", {}},
       {R"({"hidden_act": "gelu"})", {"hidden_act"}},
       {R"({"hidden_act": "swish"})", {}},
       {R"({"hidden_act": null})", {}},
       {R"({"hidden_act": "SiLU"})", {"hidden_act"}},
       {R"({"attention_bias": true, "mlp_bias": true})", {}},
       {R"({"rope_interleaved": "false"})", {"rope_interleaved"}},
       {R"({"rope_interleaved": true, "pretraining_tp": 2, "hidden_act": "relu"})",
        {"hidden_act", "pretraining_tp", "rope_interleaved"}},
       {R"({"rotary_pct": 0.25})", {"rotary_pct"}},
       {R"({"partial_rotary_factor": 1.0})", {}},
       {R"({"pretraining_tp": 2})", {"pretraining_tp"}},
       {R"({"model_type": "mistral"})", {"model_type"}},
       {R"({"architectures": ["MistralForCausalLM"]})", {"architectures"}},
       {R"({"architectures": ["LlamaForSequenceClassification"], "num_labels": 2})", {"architectures"}},
       {R"({"architectures": ["LLaMAForCausalLM"], "max_sequence_length": 2048, "pad_token_id": -1})", {}},
       {R"({"architectures": null, "model_type": null})", {}},
       {R"({"sliding_window": null})", {}},
       {R"({"sliding_window": 4096})", {"sliding_window"}},
       {R"({"layer_types": ["full_attention", "full_attention"]})", {}},
       {R"({"layer_types": ["full_attention", "sliding_attention"]})", {"layer_types"}},
       {R"({"layer_types": "full_attention"})", {"layer_types"}},
       {R"({"quantization_config": null})", {}},
       {R"({"quantization_config": {"quant_method": "fp8"}})", {}},
       {R"({"quantization_config": {"quant_method": "fp8", "new_key": 1}})", {"quantization_config.new_key"}},
       {R"({"quantization_config": {"quant_method": "quanto"}})", {"quantization_config"}},
       {R"({"pruned_heads": {}})", {}},
       {R"({"pruned_heads": {"0": [1]}})", {"pruned_heads"}},
       {R"({"auto_map": {"AutoModelForCausalLM": "modeling_x.XForCausalLM"}})", {"auto_map"}},
       {R"({"attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 256})",
        {"attn_logit_softcapping", "query_pre_attn_scalar"}},
       {R"({"no_rope_layers": [1, 0]})", {"no_rope_layers"}},
       {R"({"original_max_position_embeddings": 8192})", {"original_max_position_embeddings"}},
       {R"({"rope_interleaved": false, "is_llama_config": true, "transformers.js_config": {"kv_cache_dtype": {"q4": 1}}})",
        {}},
       {R"({"rope_interleaved": true})", {"rope_interleaved"}},
       // Members of the rotary embedding, in both spellings.
       {R"({"rope_scaling": {"type": "linear", "factor": 2.0}})", {}},
       {R"({"rope_scaling": {"type": "linear", "factor": 2.0, "mscale": 1.0}})", {"rope_scaling.mscale"}},
       {R"({"rope_scaling": {"rope_type": "default", "factor": 4.0}})", {"rope_scaling.factor"}},
       {R"({"rope_scaling": {"type": "default", "mrope_section": [16, 24, 24]}})", {"rope_scaling.mrope_section"}},
       {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 8192, "attention_factor": 1.2}})",
        {"rope_scaling.attention_factor"}},
       {R"({"rope_scaling": {"rope_type": "llama3", "type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                             "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})",
        {}},
       {R"({"rope_theta": null, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "beta_fast": 32}})",
        {"rope_parameters.beta_fast"}},
       {R"({"rope_parameters": {"rope_type": "default", "rope_theta": null}})", {}},
       {R"({"rope_theta": null, "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}})",
        {"rope_parameters.sliding_attention"}},
       // What old versions and training tools leave behind.
       {R"({"_name_or_path": "meta-llama/Llama-3.2-1B", "transformers_version": "4.44.0", "unsloth_fixed": true,
            "unsloth_version": "2024.9", "_attn_implementation_autoset": true, "task_specific_params": {"a": {"b": 1}},
            "max_length": 20, "top_k": 50, "do_sample": false, "return_dict": true, "output_attentions": false,
            "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "dtype": "float32", "temperature": 0.6,
            "attention_dropout": 0.1, "is_decoder": false, "chunk_size_feed_forward": 0, "cross_attention_hidden_size": null})",
        {}}});
}

TEST(Understood, KeysOfQwen3) {
  checkChanges(
      "qwen3.yaml", qwen3(),
      {{"{}", {}},
       {R"({"sliding_window": 4096})", {}},
       {R"({"use_sliding_window": true, "sliding_window": 4096})", {}},
       {R"({"layer_types": ["full_attention", "full_attention"]})", {}},
       {R"({"layer_types": ["sliding_attention", "full_attention"]})", {}},
       {R"({"attention_bias": true})", {}},
       {R"({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]})", {"model_type", "architectures"}},
       {R"({"num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "moe_intermediate_size": 768,
                     "norm_topk_prob": true, "mlp_only_layers": [], "router_aux_loss_coef": 0.001})",
        {"decoder_sparse_step", "mlp_only_layers", "moe_intermediate_size", "norm_topk_prob", "num_experts",
         "num_experts_per_tok", "router_aux_loss_coef"}}});
  Said other = check("qwen3.yaml", llama().dump());
  EXPECT_EQ(other.keys, (std::vector<std::string>{"model_type", "architectures", "mlp_bias", "pretraining_tp"}));
  // The graph of llama has no norms of q and k.
  EXPECT_EQ(check("llama.yaml", qwen3().dump()).keys,
            (std::vector<std::string>{"model_type", "architectures", "max_window_layers", "use_sliding_window"}));
}

/// config.json of other families, as they are published (shortened sizes).
struct Family {
  const char *config;
  std::vector<std::string> keys; ///< some that must be named
};

const Family families[] = {
    {R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new", "attn_pdrop": 0.1,
         "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "layer_norm_epsilon": 1e-05,
         "scale_attn_weights": true, "vocab_size": 50257})",
     {"model_type", "architectures", "activation_function", "n_embd", "n_head", "n_layer", "scale_attn_weights"}},
    {R"({"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 512, "num_hidden_layers": 6,
         "num_attention_heads": 8, "intermediate_size": 2048, "vocab_size": 50304, "hidden_act": "gelu",
         "layer_norm_eps": 1e-05, "rotary_emb_base": 10000, "rotary_pct": 0.25, "use_parallel_residual": true})",
     {"model_type", "hidden_act", "layer_norm_eps", "rotary_emb_base", "rotary_pct", "use_parallel_residual"}},
    {R"({"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "hidden_size": 256, "num_hidden_layers": 2,
         "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "intermediate_size": 512, "vocab_size": 300,
         "hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh", "attn_logit_softcapping": 50.0,
         "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256, "sliding_window": 4096, "rms_norm_eps": 1e-06,
         "rope_theta": 10000.0, "cache_implementation": "hybrid"})",
     {"model_type", "hidden_activation", "hidden_act", "attn_logit_softcapping", "final_logit_softcapping",
      "query_pre_attn_scalar", "sliding_window"}},
    {R"({"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 512, "vocab_size": 300,
         "hidden_activation": "gelu_pytorch_tanh", "rope_local_base_freq": 10000.0, "rope_theta": 1000000.0,
         "sliding_window": 512, "sliding_window_pattern": 6, "rms_norm_eps": 1e-06,
         "layer_types": ["sliding_attention", "full_attention"]})",
     {"model_type", "hidden_activation", "rope_local_base_freq", "sliding_window", "sliding_window_pattern",
      "layer_types"}},
    {R"({"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "silu", "original_max_position_embeddings": 4096, "sliding_window": 2047, "rms_norm_eps": 1e-05,
         "rope_scaling": {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}, "rope_theta": 10000.0})",
     {"model_type", "architectures", "sliding_window"}},
    {R"({"model_type": "phi", "architectures": ["PhiForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "gelu_new", "layer_norm_eps": 1e-05, "partial_rotary_factor": 0.4, "qk_layernorm": false,
         "rope_theta": 10000.0})",
     {"model_type", "hidden_act", "layer_norm_eps", "qk_layernorm"}},
    {R"({"model_type": "granite", "architectures": ["GraniteForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "silu", "attention_multiplier": 0.0078125, "embedding_multiplier": 12.0, "logits_scaling": 16.0,
         "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "mlp_bias": false})",
     {"model_type", "attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier"}},
    {R"({"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "silu", "attention_bias": false, "rms_norm_eps": 1e-06, "rope_theta": 500000, "rope_scaling": null})",
     {"model_type", "architectures"}},
    {R"({"model_type": "olmo", "architectures": ["OlmoForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "silu", "clip_qkv": null, "rope_theta": 10000.0})",
     {"model_type", "architectures", "clip_qkv"}},
    {R"({"model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096})",
     {"model_type", "architectures", "sliding_window"}},
    {R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null,
         "num_experts_per_tok": 2, "num_local_experts": 8, "output_router_logits": false, "router_aux_loss_coef": 0.02})",
     {"model_type", "num_experts_per_tok", "num_local_experts", "output_router_logits"}},
    {R"({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "silu", "max_window_layers": 28, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
         "sliding_window": 32768, "use_sliding_window": false, "tie_word_embeddings": true})",
     {"model_type", "architectures"}},
    {R"({"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "silu", "first_k_dense_replace": 3, "kv_lora_rank": 512, "q_lora_rank": 1536, "n_routed_experts": 256,
         "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "rms_norm_eps": 1e-06, "rope_theta": 10000,
         "quantization_config": {"quant_method": "fp8"}, "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0}})",
     {"model_type", "first_k_dense_replace", "kv_lora_rank", "n_routed_experts", "v_head_dim"}},
    {R"({"model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "silu", "layer_types": ["full_attention", "full_attention"], "mlp_bias": false,
         "no_rope_layer_interval": 4, "no_rope_layers": [1, 0], "rms_norm_eps": 1e-06, "rope_theta": 5000000.0,
         "use_sliding_window": false})",
     {"model_type", "no_rope_layer_interval", "no_rope_layers"}},
    {R"({"model_type": "falcon", "architectures": ["FalconForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "vocab_size": 300, "alibi": false, "bias": false, "multi_query": true,
         "new_decoder_architecture": false, "parallel_attn": true, "layer_norm_epsilon": 1e-05})",
     {"model_type", "alibi", "bias", "multi_query", "new_decoder_architecture", "parallel_attn", "layer_norm_epsilon"}},
    {R"({"model_type": "starcoder2", "architectures": ["Starcoder2ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 256, "vocab_size": 300,
         "hidden_act": "gelu_pytorch_tanh", "mlp_type": "default", "norm_epsilon": 1e-05, "norm_type": "layer_norm",
         "rope_theta": 100000, "sliding_window": 4096, "use_bias": true})",
     {"model_type", "hidden_act", "mlp_type", "norm_epsilon", "norm_type", "sliding_window", "use_bias"}},
    {R"({"model_type": "stablelm", "architectures": ["StableLmForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "silu", "layer_norm_eps": 1e-05, "partial_rotary_factor": 0.25, "use_qkv_bias": false,
         "use_parallel_residual": false, "rope_theta": 10000})",
     {"model_type", "layer_norm_eps", "use_qkv_bias", "use_parallel_residual"}},
    {R"({"model_type": "cohere", "architectures": ["CohereForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "silu", "layer_norm_eps": 1e-05, "logit_scale": 0.0625, "use_qk_norm": false, "rope_theta": 10000})",
     {"model_type", "layer_norm_eps", "logit_scale", "use_qk_norm"}},
    {R"({"model_type": "minicpm", "architectures": ["MiniCPMForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "silu", "scale_emb": 12, "dim_model_base": 256, "scale_depth": 1.4, "rms_norm_eps": 1e-05,
         "auto_map": {"AutoConfig": "configuration_minicpm.MiniCPMConfig"}})",
     {"model_type", "scale_emb", "dim_model_base", "scale_depth", "auto_map"}},
    {R"({"model_type": "nemotron", "architectures": ["NemotronForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "relu2", "norm_eps": 1e-05, "partial_rotary_factor": 0.5, "rope_theta": 10000})",
     {"model_type", "hidden_act", "norm_eps"}},
    {R"({"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "vocab_size": 300,
         "hidden_act": "silu", "attention_bias": true, "experts_per_token": 4, "num_local_experts": 32,
         "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 128, "swiglu_limit": 7.0,
         "rope_scaling": {"rope_type": "yarn", "factor": 32.0}, "rope_theta": 150000})",
     {"model_type", "experts_per_token", "num_local_experts", "layer_types", "sliding_window", "swiglu_limit"}},
    {R"({"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "image_token_index": 32000,
         "projector_hidden_act": "gelu", "text_config": {"model_type": "llama", "hidden_size": 64},
         "vision_config": {"hidden_size": 64}})",
     {"model_type", "architectures", "image_token_index", "projector_hidden_act", "text_config", "vision_config"}},
    {R"({"model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "ffn_dim": 256, "vocab_size": 300, "activation_function": "relu",
         "do_layer_norm_before": true, "word_embed_proj_dim": 64})",
     {"model_type", "ffn_dim", "activation_function", "do_layer_norm_before", "word_embed_proj_dim"}},
};

TEST(Understood, OtherFamiliesAreRefused) {
  for (const char *modelFile : {"llama.yaml", "qwen3.yaml"})
    for (const Family &family : families) {
      json config = json::parse(family.config);
      if (config.contains("num_attention_heads")) // without the key Qwen3 means 32
        config.emplace("num_key_value_heads", config["num_attention_heads"]);
      Said said = check(modelFile, config.dump());
      EXPECT_FALSE(said.right) << modelFile << family.config;
      for (const std::string &key : family.keys) {
        // The other model file may take a key: its graph is right for some values of it.
        const bool ofQwen3 =
            llvm::StringRef(modelFile) == "qwen3.yaml" && (key == "sliding_window" || key == "layer_types");
        EXPECT_EQ(std::count(said.keys.begin(), said.keys.end(), key), ofQwen3 ? 0 : 1) << key << "\n" << said.all;
      }
    }
}

TEST(Understood, DefaultsStandInTheModelFile) {
  json old = llama();
  for (const char *key : {"rope_theta", "num_key_value_heads", "rms_norm_eps", "head_dim", "tie_word_embeddings",
                          "attention_bias", "mlp_bias", "hidden_act"})
    old.erase(key);
  for (const char *null : {"{}", R"({"num_key_value_heads": null, "rope_theta": null, "head_dim": null})"}) {
    old.update(json::parse(null));
    SourceFiles files;
    Diagnostics diags(files);
    std::string reason;
    auto parsed = ast::parseModel(diags, *files.open(MEGALITH_SOURCE_DIR "/pipelines/models/llama.yaml", reason));
    Acceptance acceptance;
    auto model = checkModel(*parsed, *ConfigFile::parse(old.dump()), acceptance, diags);
    ASSERT_TRUE(model) << diags.render();
    EXPECT_EQ(model->kvHeads, 4);
    EXPECT_EQ(model->headDim, 16);
    EXPECT_EQ(model->rope->theta, 10000.0);
    EXPECT_EQ(std::get<double>(model->config.at("eps")), 1e-6);
    EXPECT_EQ(std::get<bool>(model->config.at("tied")), false);
  }
}

/// Values of keys that are read: right, or refused with key and line.
TEST(Understood, ValuesOfWhatIsRead) {
  const std::string size = "must be an integer from 1 to 2147483647, found ";
  struct {
    const char *key, *value;
    std::string message; ///< empty: right
  } cases[] = {{"num_hidden_layers", "true", size + "`true`"},
               {"num_hidden_layers", "1.5", size + "`1.5`"},
               {"num_hidden_layers", "\"2\"", size + "`\"2\"`"},
               {"num_hidden_layers", "0", size + "`0`"},
               {"num_hidden_layers", "-1", size + "`-1`"},
               {"hidden_size", "9223372036854775872", size + "`9223372036854775872`"},
               {"vocab_size", "2147483648", size + "`2147483648`"},
               {"vocab_size", "1e3", size + "`1000.0`"},
               {"num_attention_heads", "[4]", size + "`[4]`"},
               {"head_dim", "\"16\"", size + "`\"16\"`"},
               {"head_dim", "32", ""},
               {"intermediate_size", "null", size + "`null`"},
               {"rms_norm_eps", "1e39", "must be a number that an f32 can hold, found `1e+39`"},
               {"rms_norm_eps", "NaN", "must be a number that an f32 can hold, found `NaN`"},
               {"rms_norm_eps", "true", "must be a number that an f32 can hold, found `true`"},
               {"rms_norm_eps", "0", "must be a number above 0 in f32, found `0`"},
               {"rms_norm_eps", "-1e-5", "must be a number above 0 in f32, found `-1e-05`"},
               {"rms_norm_eps", "1e-60", "must be a number above 0 in f32, found `1e-60`"},
               {"rms_norm_eps", "\"1e-5\"", ""},
               {"rope_theta", "\"10000\"", ""},
               {"rope_theta", "\"10000x\"", "must be a positive number, found `\"10000x\"`"},
               {"rope_theta", "0", "must be a positive number, found `0`"},
               {"rope_theta", "Infinity", "must be a positive number, found `Infinity`"},
               {"rope_theta", "false", "must be a positive number, found `false`"},
               {"tie_word_embeddings", "\"no\"", "must be true or false, found `\"no\"`"},
               {"tie_word_embeddings", "1", "must be true or false, found `1`"},
               {"eos_token_id", "[2, 300]", ""}, // a warning
               {"eos_token_id", "299", ""},
               {"initializer_range", "Infinity", ""}};
  for (const auto &c : cases) {
    json good = llama();
    good.erase(c.key);
    std::string config = good.dump();
    config.insert(1, "\n  \"" + std::string(c.key) + "\": " + c.value + ",\n");
    Said said = check("llama.yaml", config);
    EXPECT_EQ(said.right, c.message.empty()) << c.key << ": " << c.value << "\n" << said.all;
    const std::string begin = "T/config.json:2:3: error: `" + std::string(c.key) + "` " + c.message;
    if (!c.message.empty()) {
      EXPECT_EQ(said.all.substr(0, begin.size()), begin);
    }
  }
}

} // namespace
