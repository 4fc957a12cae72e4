//! What each producer chooses: conventions by name.
//!
//! From running the producers' own code (vLLM 0.33, FlashInfer 0.7.2, triton_kernels as vLLM bundles
//! it, torchao 0.18, compressed-tensors 0.20.1, ModelOpt 0.47, Quark 0.13, transformers 5.24) on the
//! same inputs; `tests/golden` holds the results. The rounding rule of power-of-two scales is no
//! convention and stands in the recipe.

use super::conventions::{
    Arithmetic, BlockFloor, BlockShare, Conventions, ElementRounding, Elements, ElementsBy, ElementsUnder,
    EvenTo, Exponent, Floor, Infinity, InfinityBlock, Maximum, NanBlock, Overflow, PowerOfTwo, Quotient,
    QuotientOf, Range, Smallest, SmallestInteger, SmallestScale, TwoLevel, ZeroSign,
};

/// torch's `finfo(float32).eps`.
const EPSILON: f32 = f32::EPSILON;

/// torch's `finfo(bfloat16).eps`.
const BFLOAT16_EPSILON: f32 = 0.0078125;

impl Elements {
    /// To nearest even, saturating, signs kept: the casts of torch and of the hardware.
    pub const OURS: Self = Self {
        rounding: ElementRounding::NearestEven,
        zero: ZeroSign::Kept,
        overflow: Overflow::Saturates,
        smallest: SmallestInteger::TwosComplement,
        arithmetic: Arithmetic::Single,
    };

    /// Values and signs put together by `torch.sign`: vLLM, compressed-tensors, FlashInfer's tests.
    pub const SIGNED_APART: Self = Self { zero: ZeroSign::OfNegative, ..Self::OURS };

    /// FlashInfer's helpers for sm_120.
    pub const UNSIGNED_ZERO: Self = Self { zero: ZeroSign::Dropped, ..Self::OURS };

    /// torch's casts to e5m2, ml_dtypes' to all.
    pub const OVERFLOWING: Self = Self { overflow: Overflow::Exceptional, ..Self::OURS };
}

impl Conventions {
    /// This crate's, on every engine: FlashInfer's exact arithmetic for e8m0 scales, vLLM's per-token
    /// groups for f32 ones, vLLM's order of operations for two levels; but a NaN is never lost, and an
    /// infinity saturates.
    pub const OURS: Self = Self {
        maximum: Maximum::WithNan,
        power_of_two: PowerOfTwo {
            exponent: Exponent::Bits,
            even: EvenTo::Element,
            floor: Floor::None,
            nan: NanBlock::Lost,
            infinity: InfinityBlock::Largest,
            smallest: Smallest::Zeros,
        },
        quotient: Quotient {
            scale: QuotientOf::Division,
            range: Range::Largest,
            floor: Floor::AtLeast(1e-10),
            smallest: SmallestScale::Any,
            infinity: Infinity::Saturated,
            elements: ElementsBy::Division,
            arithmetic: Arithmetic::Single,
        },
        two_level: TwoLevel {
            scale: BlockShare::OfProduct,
            arithmetic: Arithmetic::Single,
            floor: BlockFloor::None,
            elements: ElementsUnder::Reciprocal,
        },
        elements: Elements::OURS,
    };

    const fn power_of_two(power_of_two: PowerOfTwo) -> Self {
        Self { power_of_two, ..Self::OURS }
    }

    const fn quotient(quotient: Quotient) -> Self {
        Self { quotient, ..Self::OURS }
    }

    /// FlashInfer's exact reference of its MX kernels.
    pub const FLASHINFER: Self =
        Self::power_of_two(PowerOfTwo { nan: NanBlock::Smallest, ..Self::OURS.power_of_two });

    /// triton_kernels' `downcast_to_mxfp` to FP8, FlashInfer's helpers for sm_120.
    pub const TRITON_KERNELS: Self = Self::power_of_two(PowerOfTwo {
        exponent: Exponent::NormalBits,
        infinity: InfinityBlock::Infinite,
        ..Self::FLASHINFER.power_of_two
    });

    /// triton_kernels' `downcast_to_mxfp` to FP4, gpt-oss' own quantiser.
    pub const TRITON_KERNELS_FP4: Self = Self {
        elements: Elements { rounding: ElementRounding::NearestAway, ..Elements::OURS },
        ..Self::TRITON_KERNELS
    };

    /// FlashInfer's `ref_fp4_quant` with e8m0 scales.
    pub const FLASHINFER_TESTS_FP4: Self = Self { elements: Elements::SIGNED_APART, ..Self::TRITON_KERNELS };

    /// ModelOpt's MXFP8.
    pub const MODELOPT: Self = Self::power_of_two(PowerOfTwo {
        exponent: Exponent::Logarithm,
        nan: NanBlock::Smallest,
        smallest: Smallest::Exact,
        ..Self::OURS.power_of_two
    });

    /// vLLM's MXFP8 in torch.
    pub const VLLM_TORCH: Self =
        Self::power_of_two(PowerOfTwo { nan: NanBlock::LostAtZero, ..Self::MODELOPT.power_of_two });

    /// vLLM's Triton kernels for MX formats.
    pub const VLLM_TRITON: Self = Self {
        maximum: Maximum::OfNumbers,
        ..Self::power_of_two(PowerOfTwo {
            infinity: InfinityBlock::LargestOnceRounded,
            ..Self::MODELOPT.power_of_two
        })
    };

    /// FlashInfer's `prepare` for MXFP4 weights on Hopper.
    pub const FLASHINFER_PREPARE: Self = Self {
        elements: Elements {
            rounding: ElementRounding::NearestDown,
            zero: ZeroSign::OfNegative,
            ..Elements::OURS
        },
        ..Self::power_of_two(PowerOfTwo { infinity: InfinityBlock::Smallest, ..Self::MODELOPT.power_of_two })
    };

    /// ModelOpt's MXFP4, whose zeros are negative; so is what it makes of NaN.
    pub const MODELOPT_FP4: Self = Self {
        elements: Elements { zero: ZeroSign::UnlessPositive, ..Self::FLASHINFER_PREPARE.elements },
        ..Self::power_of_two(PowerOfTwo {
            nan: NanBlock::LostAtZero,
            infinity: InfinityBlock::Zeroed,
            ..Self::FLASHINFER_PREPARE.power_of_two
        })
    };

    /// Quark's `even_round`.
    pub const QUARK: Self = Self::power_of_two(PowerOfTwo {
        infinity: InfinityBlock::LargestOnceRounded,
        ..Self::OURS.power_of_two
    });

    /// torchao's `floor`, `ceil` and `even`.
    pub const TORCHAO: Self = Self::power_of_two(PowerOfTwo {
        nan: NanBlock::Infinite,
        infinity: InfinityBlock::Rule,
        smallest: Smallest::SmallestNormal,
        ..Self::OURS.power_of_two
    });

    /// torchao's `rceil`, not compiled.
    pub const TORCHAO_RCEIL: Self = Self::power_of_two(PowerOfTwo {
        exponent: Exponent::Logarithm,
        smallest: Smallest::One,
        ..Self::OURS.power_of_two
    });

    /// compressed-tensors' MXFP8, whose rule is `even` with FP4's mantissa.
    pub const COMPRESSED_TENSORS: Self = Self::power_of_two(PowerOfTwo {
        even: EvenTo::Fp4,
        nan: NanBlock::Smallest,
        infinity: InfinityBlock::One,
        smallest: Smallest::Exact,
        ..Self::OURS.power_of_two
    });

    /// compressed-tensors' MXFP4.
    pub const COMPRESSED_TENSORS_FP4: Self =
        Self { elements: Elements::SIGNED_APART, ..Self::COMPRESSED_TENSORS };

    /// FlashInfer's groups of 128 in its CUTLASS tests: vLLM's per-token groups. `smallest` is 1e-10 in
    /// the type of the input.
    pub const fn fp8_groups(smallest: f32) -> Self {
        let floor = Floor::AtLeast(smallest);
        Self::quotient(Quotient { floor, infinity: Infinity::Kept, ..Self::OURS.quotient })
    }

    /// vLLM's per-token groups in Triton, e8m0 scales included.
    pub const FP8_GROUPS_TRITON: Self = Self {
        maximum: Maximum::OfNumbers,
        power_of_two: PowerOfTwo {
            exponent: Exponent::Logarithm,
            floor: Floor::AtLeast(1e-10),
            infinity: InfinityBlock::Infinite,
            ..Self::OURS.power_of_two
        },
        ..Self::quotient(Quotient {
            scale: QuotientOf::Multiplication,
            infinity: Infinity::Kept,
            ..Self::OURS.quotient
        })
    };

    /// DeepGEMM's casts, by token and by block, e8m0 scales included.
    pub const DEEPGEMM: Self = Self {
        power_of_two: PowerOfTwo { floor: Floor::AtLeast(1e-4), ..Self::FP8_GROUPS_TRITON.power_of_two },
        ..Self::quotient(Quotient {
            floor: Floor::AtLeast(1e-4),
            infinity: Infinity::Kept,
            elements: ElementsBy::Reciprocal,
            ..Self::OURS.quotient
        })
    };

    /// vLLM's `scaled_quantize`.
    pub const SCALED_QUANTIZE: Self = Self::quotient(Quotient {
        scale: QuotientOf::Inverse,
        floor: Floor::AtLeast(1e-12),
        infinity: Infinity::Kept,
        elements: ElementsBy::Inverse,
        ..Self::OURS.quotient
    });

    /// vLLM's and FlashInfer's dynamic scale of a tensor (`input_to_float8`), computed in the type of
    /// the input.
    pub const fn input_to_float8(arithmetic: Arithmetic) -> Self {
        let quotient = Quotient { arithmetic, ..Self::SCALED_QUANTIZE.quotient };
        Self { elements: Elements { arithmetic, ..Elements::OURS }, ..Self::quotient(quotient) }
    }

    /// FlashInfer's dynamic scale of a tensor in its CUTLASS tests.
    pub const FP8_DYNAMIC: Self = Self::quotient(Quotient { floor: Floor::None, ..Self::DEEPGEMM.quotient });

    /// FlashInfer's DeepSeek tests.
    pub const DEEPSEEK: Self =
        Self::quotient(Quotient { floor: Floor::One, infinity: Infinity::Kept, ..Self::OURS.quotient });

    /// transformers' fine-grained FP8, e8m0 scales included.
    pub const FINEGRAINED: Self = Self {
        power_of_two: PowerOfTwo { floor: Floor::One, ..Self::FP8_GROUPS_TRITON.power_of_two },
        ..Self::quotient(Quotient { floor: Floor::One, ..Self::SCALED_QUANTIZE.quotient })
    };

    /// FlashInfer's single-kernel MoE.
    pub const MONOKERNEL: Self = Self::quotient(Quotient {
        floor: Floor::AtLeast(1e-12),
        infinity: Infinity::Kept,
        ..Self::OURS.quotient
    });

    /// compressed-tensors' FP8, computed in the type of the input.
    pub const fn compressed_tensors_fp8(arithmetic: Arithmetic) -> Self {
        let epsilon = match arithmetic {
            Arithmetic::Single => EPSILON,
            Arithmetic::Bfloat16 => BFLOAT16_EPSILON,
        };
        Self {
            elements: Elements { arithmetic, ..Elements::OURS },
            ..Self::quotient(Quotient {
                floor: Floor::None,
                smallest: SmallestScale::ZeroBecomes(epsilon),
                infinity: Infinity::Kept,
                arithmetic,
                ..Self::OURS.quotient
            })
        }
    }

    /// compressed-tensors' int8: 127.5 is the largest, so that -128 is used.
    pub const fn compressed_tensors_int8(arithmetic: Arithmetic) -> Self {
        let fp8 = Self::compressed_tensors_fp8(arithmetic);
        Self { quotient: Quotient { range: Range::HalfOfCodes, ..fp8.quotient }, ..fp8 }
    }

    /// vLLM's int8 by token.
    pub const INT8_TOKENS: Self = Self {
        elements: Elements { rounding: ElementRounding::NearestAway, ..Elements::OURS },
        ..Self::quotient(Quotient { elements: ElementsBy::Inverse, ..Self::OURS.quotient })
    };

    /// vLLM's int8 by group in Triton, which does not round.
    pub const INT8_GROUPS_TRITON: Self =
        Self { elements: Elements { rounding: ElementRounding::TowardZero, ..Elements::OURS }, ..Self::OURS };

    /// torchao's symmetric int8. The scale is computed in the type of the input.
    pub const fn torchao_int8(arithmetic: Arithmetic) -> Self {
        Self {
            elements: Elements { smallest: SmallestInteger::Symmetric, ..Elements::OURS },
            ..Self::quotient(Quotient {
                floor: Floor::None,
                smallest: SmallestScale::AtLeast(EPSILON),
                elements: ElementsBy::Reciprocal,
                arithmetic,
                ..Self::OURS.quotient
            })
        }
    }

    /// vLLM's NVFP4.
    pub const VLLM_NVFP4: Self = Self {
        elements: Elements::SIGNED_APART,
        two_level: TwoLevel { elements: ElementsUnder::ReciprocalOrTiny, ..Self::OURS.two_level },
        ..Self::OURS
    };

    /// FlashInfer's tests' NVFP4.
    pub const FLASHINFER_TESTS_NVFP4: Self = Self { elements: Elements::SIGNED_APART, ..Self::OURS };

    /// FlashInfer's NVFP4 for sm_120.
    pub const FLASHINFER_SM120_NVFP4: Self = Self {
        elements: Elements::UNSIGNED_ZERO,
        two_level: TwoLevel { scale: BlockShare::OfQuotient, ..Self::OURS.two_level },
        ..Self::OURS
    };

    /// Transformer Engine's NVFP4, as FlashInfer's tests repeat it.
    pub const TRANSFORMER_ENGINE_NVFP4: Self = Self {
        elements: Elements::SIGNED_APART,
        two_level: TwoLevel {
            scale: BlockShare::ByFactor,
            elements: ElementsUnder::ReciprocalOrLargest,
            ..Self::OURS.two_level
        },
        ..Self::OURS
    };

    /// torchao's NVFP4.
    pub const TORCHAO_NVFP4: Self = Self {
        two_level: TwoLevel {
            scale: BlockShare::ByDivision,
            floor: BlockFloor::SmallestNormal,
            elements: ElementsUnder::Quotient,
            ..Self::OURS.two_level
        },
        ..Self::OURS
    };

    /// compressed-tensors' NVFP4. The quotient is computed in the type of the input.
    pub const fn compressed_tensors_nvfp4(arithmetic: Arithmetic) -> Self {
        let two_level = TwoLevel {
            scale: BlockShare::OfQuotient,
            arithmetic,
            floor: BlockFloor::Eighth,
            elements: ElementsUnder::DivisionByQuotient,
        };
        Self { elements: Elements::SIGNED_APART, two_level, ..Self::OURS }
    }

    /// ModelOpt's NVFP4.
    pub const MODELOPT_NVFP4: Self = Self {
        elements: Elements::SIGNED_APART,
        two_level: TwoLevel {
            scale: BlockShare::ByDivisor,
            floor: BlockFloor::SmallestOrOne,
            elements: ElementsUnder::DivisionByProduct,
            ..Self::OURS.two_level
        },
        ..Self::OURS
    };
}
