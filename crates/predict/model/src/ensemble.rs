//! Several networks merged into one: each of its layers is as wide as theirs together, and each of
//! its outputs is the mean of theirs.
//!
//! Networks that were trained apart err apart, so their mean errs less; and one network is what can
//! be stored, exported and run. The weights between parts of different members are 0.

use crate::Error;
use crate::network::{Layer, Network};

impl Network {
    /// The mean of networks of the same depth, scaling and targets: of the sums of their last
    /// layers, so of the logits where a target is a fraction.
    ///
    /// # Errors
    /// [`Error`] when there is none, or they differ in what they must share.
    pub fn mean_of(members: &[Network]) -> Result<Network, Error> {
        let Some(first) = members.first() else {
            return Err(Error::TooFew { what: "networks to take the mean of", needed: 1, found: 0 });
        };
        let depth = first.layers().len();
        for member in members {
            Error::check_length("the layers of a member", depth, member.layers().len())?;
            let same = member.activation() == first.activation()
                && member.targets() == first.targets()
                && member.input_scaling() == first.input_scaling()
                && member.output_scaling() == first.output_scaling();
            Error::check_range(same, "a member", 0.0, "of the same activation, targets and scaling")?;
        }
        let layer = |index: usize| {
            let layers: Vec<&Layer> = members.iter().map(|member| &member.layers()[index]).collect();
            match (index == 0, index + 1 == depth) {
                (true, true) => beside_and_mean(&layers, true),
                (false, true) => beside_and_mean(&layers, false),
                (shared, false) => apart(&layers, shared),
            }
        };
        Network::from_parts(
            first.activation(),
            first.input_scaling().clone(),
            (0..depth).map(layer).collect(),
            first.targets().to_vec(),
            first.output_scaling().clone(),
        )
    }
}

/// All outputs, one member's after another's; each member sees its own inputs, or all see the same.
fn apart(layers: &[&Layer], shared_inputs: bool) -> Layer {
    let inputs: usize = layers.iter().map(|layer| layer.inputs).sum();
    let inputs = if shared_inputs { layers[0].inputs } else { inputs };
    let (mut weights, mut bias, mut before) = (Vec::new(), Vec::new(), 0);
    for layer in layers {
        for row in layer.weights.chunks_exact(layer.inputs) {
            let start = weights.len();
            weights.resize(start + inputs, 0.0);
            weights[start + before..][..layer.inputs].copy_from_slice(row);
        }
        bias.extend_from_slice(&layer.bias);
        before += if shared_inputs { 0 } else { layer.inputs };
    }
    Layer { inputs, outputs: bias.len(), weights, bias }
}

/// The mean of the members' outputs, from their inputs side by side, or from the same inputs.
fn beside_and_mean(layers: &[&Layer], shared_inputs: bool) -> Layer {
    let share = 1.0 / layers.len() as f32;
    let outputs = layers[0].outputs;
    let (mut weights, mut bias) = (Vec::new(), Vec::new());
    for output in 0..outputs {
        let rows = layers.iter().map(|layer| &layer.weights[output * layer.inputs..][..layer.inputs]);
        if shared_inputs {
            let start = weights.len();
            weights.resize(start + layers[0].inputs, 0.0);
            for row in rows {
                weights[start..].iter_mut().zip(row).for_each(|(sum, weight)| *sum += share * weight);
            }
        } else {
            weights.extend(rows.flatten().map(|weight| share * weight));
        }
        bias.push(layers.iter().map(|layer| share * layer.bias[output]).sum());
    }
    Layer { inputs: weights.len() / outputs, outputs, weights, bias }
}

#[cfg(test)]
mod tests {
    use crate::network::{Activation, Network, Target};
    use crate::predict::{Precision, Predictor, Scratch};
    use apex_random::Random;

    fn outputs(network: &Network, features: &[f32]) -> Vec<f32> {
        let predictor = Predictor::new(network, Precision::F32);
        let mut found = vec![0.0; network.outputs()];
        predictor.predict(features, &mut Scratch::new(), &mut found).unwrap();
        found
    }

    #[test]
    fn the_mean_network_gives_the_mean() {
        let mut random = Random::new(3);
        for hidden in [&[][..], &[7], &[9, 5], &[4, 6, 8]] {
            let targets = vec![Target::real("a").with_quantiles(&[0.1, 0.9]), Target::real("b")];
            let members: Vec<Network> = (0..5)
                .map(|seed| Network::new(6, hidden, Activation::Silu, targets.clone(), seed).unwrap())
                .collect();
            let all = Network::mean_of(&members).unwrap();
            let features: Vec<f32> = (0..6).map(|_| random.normal() as f32).collect();
            let each: Vec<Vec<f32>> = members.iter().map(|member| outputs(member, &features)).collect();
            for (index, found) in outputs(&all, &features).into_iter().enumerate() {
                let mean = each.iter().map(|outputs| outputs[index]).sum::<f32>() / 5.0;
                assert!((found - mean).abs() < 1e-5, "{hidden:?}: {found} {mean}");
            }
        }
    }

    #[test]
    fn members_must_agree() {
        let make = |hidden: &[usize], activation| {
            Network::new(2, hidden, activation, vec![Target::real("a")], 1).unwrap()
        };
        assert!(Network::mean_of(&[]).is_err());
        let (relu, silu) = (make(&[3], Activation::Relu), make(&[3], Activation::Silu));
        assert!(Network::mean_of(&[relu.clone(), silu]).is_err());
        assert!(Network::mean_of(&[relu, make(&[3, 3], Activation::Relu)]).is_err());
    }
}
